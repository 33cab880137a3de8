#!/usr/bin/env python3
"""The admission policy of dist/kubernetes/startup-taint, as Google's CEL evaluates it: the account changes one taint of its own node.

    policy.py

Needs PyPI's cel-expr-python and kubernetes-validate (for its YAML). Exit code 77: something of that is not there."""
import copy
import sys
from pathlib import Path

try:
    import yaml
    from cel_expr_python import cel
except ImportError as lacks:
    print(f"{lacks.name} is not there: pip install cel-expr-python kubernetes-validate")
    sys.exit(77)

RIGHTS = Path(__file__).resolve().parents[3] / "dist/kubernetes/startup-taint/rights.yaml"
ACCOUNT = "system:serviceaccount:xsched:xsched-node"
CLAIM = "authentication.kubernetes.io/node-name"
OURS = {"key": "xsched.dev/not-ready", "effect": "NoSchedule"}
OTHER = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
NODE = {"metadata": {"name": "n1", "labels": {"a": "b"}}, "spec": {"providerID": "p", "taints": [OTHER]}}


class Policy:
    """A ValidatingAdmissionPolicy, judged as the API server does: conditions, variables in order, validations."""

    def __init__(self, spec):
        self.spec = spec
        self.env = cel.NewEnv(variables={name: cel.Type.DYN for name in ("object", "oldObject", "request", "variables")})

    def value(self, expression, data):
        return self.env.compile(expression).eval(data=data).plain_value()

    def judge(self, new, old, user):
        """None: of another user; else the messages of what it refuses."""
        data = {"object": new, "oldObject": old, "request": {"userInfo": user}, "variables": {}}
        if not all(self.value(condition["expression"], data) for condition in self.spec["matchConditions"]):
            return None
        for variable in self.spec["variables"]:
            data["variables"] = {**data["variables"], variable["name"]: self.value(variable["expression"], data)}
        # What is no boolean, an error, refuses as well: failurePolicy is Fail.
        return [one["message"] for one in self.spec["validations"] if self.value(one["expression"], data) is not True]


def user(node):
    return {"username": ACCOUNT, "extra": {CLAIM: [node]}}


def main():
    [spec] = [one["spec"] for one in yaml.safe_load_all(RIGHTS.read_text()) if one["kind"] == "ValidatingAdmissionPolicy"]
    policy = Policy(spec)

    def changed(path, value, node=NODE):
        new = copy.deepcopy(node)
        *parents, last = path
        place = new
        for key in parents:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
        return new

    taints = ("spec", "taints")
    bare, ours = changed(taints, None), changed(taints, [OURS])
    for name, new, old in (
        ("set beside another", changed(taints, [OTHER, OURS]), NODE),
        ("set as the first", ours, bare),
        ("removed as the last", bare, ours),
        ("removed beside another", NODE, changed(taints, [OURS, OTHER])),
        ("nothing", NODE, NODE),
    ):
        assert policy.judge(new, old, user("n1")) == [], name
    refused = 0
    for path, value in (
        (taints, None),
        (taints, []),
        (taints, [OTHER, OURS, {"key": "own", "effect": "NoExecute"}]),
        (taints, [{**OTHER, "effect": "PreferNoSchedule"}]),
        (("metadata", "labels"), {"a": "b", "pool": "own"}),
        (("metadata", "labels"), None),
        (("metadata", "annotations"), {"a": "b"}),
        (("metadata", "finalizers"), ["own"]),
        (("metadata", "ownerReferences"), [{"kind": "Pod", "name": "own", "uid": "1"}]),
        (("spec", "unschedulable"), True),
        (("spec", "providerID"), "own"),
        (("spec", "podCIDRs"), ["10.0.0.0/8"]),
    ):
        assert len(policy.judge(changed(path, value), NODE, user("n1"))) == 1, (path, value)
        refused += 1
    set_there = changed(taints, [OTHER, OURS])
    for name, other in (("another node", user("n2")), ("no node", {"username": ACCOUNT}), ("no claim", {"username": ACCOUNT, "extra": {}})):
        [message] = policy.judge(set_there, NODE, other)
        assert "the node on which it runs" in message, name
        refused += 1
    assert policy.judge(changed(("spec", "unschedulable"), True), NODE, {"username": "admin"}) is None, "others are not concerned"
    print(f"one taint of the own node is allowed, {refused} other changes are refused")


if __name__ == "__main__":
    main()
