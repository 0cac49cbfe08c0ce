"""The performance model, CrossFlow: from inputs to a predicted iteration or served token.

Begin with `crossflow.py`.
"""
