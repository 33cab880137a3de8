#!/usr/bin/env python3
"""An assertion that fails on the device ends a PyTorch program in its own way: exit status 1 and its own words."""

import checks

torch = checks.need("torch")
if not torch.cuda.is_available():
    checks.absent("no GPU")

x = torch.zeros(10, device="cuda")
try:
    x[torch.tensor([100], device="cuda")].sum().item()
except RuntimeError as error:
    checks.show("first", type(error).__name__)
try:
    torch.ones(10, device="cuda").sum().item()
except RuntimeError as error:
    checks.show("afterwards", type(error).__name__)
raise SystemExit("the device has failed, and so have I")
