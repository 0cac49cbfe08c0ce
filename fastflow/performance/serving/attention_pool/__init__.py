"""Attention on devices of its own: layouts, the pipeline of micro-batches, transfers, tables, memory."""
