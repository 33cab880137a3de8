"""A model in onnxruntime built for ROCm: a convolution, an activation and a product. What it computes is not looked at."""

import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RUNS = 20

onnxruntime.set_default_logger_severity(3)
numbers = numpy.random.default_rng(0)


def constant(name, *shape):
    return numpy_helper.from_array(numbers.standard_normal(shape).astype(numpy.float32), name)


nodes = [
    helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["a"], ["b"]),
    helper.make_node("Flatten", ["b"], ["c"]),
    helper.make_node("MatMul", ["c", "m"], ["y"]),
]
inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 16, 16])]
outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 10])]
graph = helper.make_graph(nodes, "model", inputs, outputs, [constant("w", 8, 3, 3, 3), constant("m", 8 * 16 * 16, 10)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["ROCMExecutionProvider"])
print("onnxruntime", onnxruntime.__version__)
print("providers", *session.get_providers())
if "ROCMExecutionProvider" not in session.get_providers():
    raise SystemExit("onnxruntime does not take ROCm")
for _ in range(RUNS):
    (result,) = session.run(None, {"x": numpy.ones((4, 3, 16, 16), numpy.float32)})
print("runs", RUNS, "shape", *result.shape)
