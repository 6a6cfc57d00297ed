"""The graphs of `graphs.py` as ONNX models with random weights."""
import numpy as np
import onnx
from onnx import TensorProto, helper

from graphs import CONVOLUTIONS, HEADS, HIDDEN, INNER, LAYERS, TOKENS, VOCABULARY

GENERATOR = np.random.default_rng(0)


def random(*shape, scale=1.0):
    return GENERATOR.standard_normal(shape, dtype=np.float32) * np.float32(scale)


class Graph:
    """A graph under construction. Values are their names."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def model(self, inputs, output):
        """The bytes of the model with inputs of the given values, and those."""
        types = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
        info = [helper.make_tensor_value_info(x, types[v.dtype.kind], v.shape) for x, v in inputs.items()]
        output = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        body = helper.make_graph(self.nodes, "graph", info, [output], self.constants)
        model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return model.SerializeToString(), inputs


def build(key):
    """A model and its inputs."""
    name, _, rest = key.partition(" ")
    return {
        "matmul": matmul,
        "softmax": softmax,
        "layer_norm": layer_norm,
        "gelu": lambda _: gelu("none"),
        "gelu_tanh": lambda _: gelu("tanh"),
        "conv": convolution,
        "pool": pool,
        "resize": resize,
        "resnet18": lambda _: network(resnet18),
        "mobilenet": lambda _: network(mobilenet),
        "encoder": lambda batch: encoder(int(batch)),
    }[name](rest)


def matmul(rest):
    side, n = rest.split()
    graph, n = Graph(), int(n)
    inputs = {"x": random(n, n)}
    if side == "given":
        inputs["w"] = random(n, n)
    return graph.model(inputs, graph.node("MatMul", "x", "w" if side == "given" else graph.constant(random(n, n))))


def softmax(_):
    graph = Graph()
    return graph.model({"x": random(4096, 4096)}, graph.node("Softmax", "x", axis=-1))


def layer_norm(_):
    graph = Graph()
    return graph.model({"x": random(4096, 4096)}, normalized(graph, "x", 4096, 1e-5))


def gelu(form):
    graph = Graph()
    a, b, c = (graph.constant(random(1)) for _ in range(3))
    y = graph.node("Gelu", graph.node("Add", graph.node("Mul", "x", a), b), approximate=form)
    return graph.model({"x": random(64 << 20)}, graph.node("Add", y, c))


def convolution(name):
    x, filters, groups, stride, padding = CONVOLUTIONS[name]
    graph = Graph()
    windows = {"strides": [stride] * 2, "pads": [padding] * 4}
    return graph.model(
        {"x": random(*x)}, graph.node("Conv", "x", graph.constant(random(*filters)), group=groups, **windows)
    )


def pool(kind):
    graph, more = Graph(), {} if kind == "Max" else {"count_include_pad": 1}
    y = graph.node(f"{kind}Pool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, **more)
    return graph.model({"x": random(8, 64, 112, 112)}, y)


def resize(rest):
    graph = Graph()
    scales = graph.constant(np.array([1, 1, 2, 2], np.float32))
    y = graph.node("Resize", "x", "", scales, mode=rest.split()[0])
    return graph.model({"x": random(4, 3, 512, 512)}, y)


def network(layers):
    """An image classifier."""
    graph = Graph()
    y, channels = layers(graph)
    y = graph.node("Flatten", graph.node("GlobalAveragePool", y))
    y = linear(graph, y, channels, 1000)
    return graph.model({"x": random(1, 3, 224, 224)}, y)


def conv(graph, x, channels, results, size, stride, groups=1):
    terms = channels // groups * size * size
    filters = graph.constant(random(results, channels // groups, size, size, scale=(2 / terms) ** 0.5))
    bias = graph.constant(random(results, scale=0.01))
    return graph.node("Conv", x, filters, bias, strides=[stride] * 2, pads=[size // 2] * 4, group=groups)


def resnet18(graph):
    x = graph.node("Relu", conv(graph, "x", 3, 64, 7, 2))
    x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for results in (64, 64, 128, 128, 256, 256, 512, 512):
        stride = 1 if results == channels else 2
        y = graph.node("Relu", conv(graph, x, channels, results, 3, stride))
        y = conv(graph, y, results, results, 3, 1)
        shortcut = x if results == channels else conv(graph, x, channels, results, 1, stride)
        x, channels = graph.node("Relu", graph.node("Add", y, shortcut)), results
    return x, channels


def mobilenet(graph):
    x, channels = graph.node("Relu", conv(graph, "x", 3, 32, 3, 2)), 32
    layers = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for results, stride in layers:
        x = graph.node("Relu", conv(graph, x, channels, channels, 3, stride, channels))
        x, channels = graph.node("Relu", conv(graph, x, channels, results, 1, 1)), results
    return x, channels


def linear(graph, x, columns, rows):
    y = graph.node("MatMul", x, graph.constant(random(columns, rows, scale=0.04)))
    return graph.node("Add", y, graph.constant(random(rows, scale=0.04)))


def normalized(graph, x, size, epsilon):
    weight, bias = graph.constant(np.ones(size, np.float32)), graph.constant(np.zeros(size, np.float32))
    return graph.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)


def encoder(batch):
    """The encoder of the bench `encoder`, for a batch of any size."""
    graph = Graph()
    x = graph.node("Gather", graph.constant(random(VOCABULARY, HIDDEN, scale=0.04)), "ids")
    x = graph.node("Add", x, graph.constant(random(TOKENS, HIDDEN, scale=0.04)))
    x = graph.node("Add", x, graph.constant(random(HIDDEN, scale=0.04)))
    x = normalized(graph, x, HIDDEN, 1e-12)
    for _ in range(LAYERS):
        x = normalized(graph, graph.node("Add", x, attention(graph, x)), HIDDEN, 1e-12)
        y = graph.node("Gelu", linear(graph, x, HIDDEN, INNER))
        x = normalized(graph, graph.node("Add", x, linear(graph, y, INNER, HIDDEN)), HIDDEN, 1e-12)
    mean = graph.node("ReduceMean", x, graph.constant(np.array([1])), keepdims=0)
    squares = graph.node("ReduceSum", graph.node("Mul", mean, mean), graph.constant(np.array([-1])), keepdims=1)
    y = graph.node("Div", mean, graph.node("Sqrt", squares))
    return graph.model({"ids": GENERATOR.integers(0, VOCABULARY, (batch, TOKENS))}, y)


def attention(graph, x):
    split = graph.constant(np.array([0, 0, HEADS, HIDDEN // HEADS]))
    heads = lambda order: graph.node(
        "Transpose", graph.node("Reshape", linear(graph, x, HIDDEN, HIDDEN), split), perm=order
    )
    queries, keys, values = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scale = graph.constant(np.float32((HIDDEN // HEADS) ** -0.5))
    shares = graph.node("Softmax", graph.node("Mul", graph.node("MatMul", queries, keys), scale), axis=-1)
    mixed = graph.node("Transpose", graph.node("MatMul", shares, values), perm=[0, 2, 1, 3])
    mixed = graph.node("Reshape", mixed, graph.constant(np.array([0, 0, HIDDEN])))
    return linear(graph, mixed, HIDDEN, HIDDEN)
