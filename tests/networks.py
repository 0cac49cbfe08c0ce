"""Networks that test files write down: products of three layers, a small MLP, towers."""

MLP = """
rows: 4096
layers:
- name: mlp
  kernels:
  - {name: up, type: gemm, inner: 512, cols: 2048}
  - {name: act, type: elementwise, cols: 2048}
  - {name: down, type: gemm, inner: 2048, cols: 512}
- name: head
  kernels:
  - {name: logits, type: gemm, inner: 512, cols: 1024}
"""
MLP_WEIGHTS = 512 * 2048 * 2 + 512 * 1024
TOWERS = """
name: towers
dimensions: {batch: 2048, pixels: 196, channels: 256, hidden: 8192, classes: 1000}
rows: [batch, pixels]
sequences: 2048
layers:
- name: tower
  repeat: 4
  kernels:
  - {name: convolution, type: gemm, inner: channels, cols: channels}
  - {name: relu, type: elementwise, cols: channels, flop: 1}
- name: widen
  kernels:
  - {name: pool, type: elementwise, rows: batch, cols: channels, moves: 197, flop: 196, backward_moves: 197,
     backward_flop: 0}
  - {name: product, type: gemm, rows: batch, inner: channels, cols: hidden}
  - {name: relu, type: elementwise, rows: batch, cols: hidden, flop: 1}
- name: dense
  repeat: 2
  kernels:
  - {name: product, type: gemm, rows: batch, inner: hidden, cols: hidden}
  - {name: relu, type: elementwise, rows: batch, cols: hidden, flop: 1}
- name: head
  kind: softmax
  kernels:
  - {name: logits, type: gemm, rows: batch, inner: hidden, cols: classes}
  - {name: loss, type: rowwise, rows: batch, cols: classes, flop: 4, moves: 1, backward_moves: 2}
"""
LAYERS = (("low", "embedding"), ("middle", "hidden"), ("high", "softmax"))


def three_products(rows, sizes, loss=True):
    """Return a feed-forward network as YAML; sizes: columns that enter it, and that each layer makes."""
    lines = ["name: three products", f"rows: {rows}", "layers:"]
    for (name, kind), inner, cols in zip(LAYERS, sizes, sizes[1:], strict=False):
        lines += [f"- name: {name}", f"  kind: {kind}", "  kernels:"]
        lines.append(f"  - {{name: {name}, type: gemm, inner: {inner}, cols: {cols}}}")
    if loss:
        lines.append(f"  - {{name: loss, type: rowwise, cols: {sizes[-1]}, flop: 4, moves: 1}}")
    return "\n".join(lines) + "\n"
