"""What one device holds at every step of an iteration: a schedule, walked step by step.

Tensors are added where they are made, and freed where their last reader ends. A stage keeps what a
micro-batch's backward pass reads until all of this pass has ended. What is offloaded leaves once it is made,
but for two hidden layers, the largest ones.
"""

from tests.naive import footprint


def order_of(schedule, stages, stage, microbatches):
    """Yield the passes of a stage: a letter, F or B, and the micro-batch."""
    if schedule == "gpipe":
        yield from (("F", number) for number in range(microbatches))
        yield from (("B", number) for number in reversed(range(microbatches)))
        return
    forward = backward = 0
    while backward < microbatches:
        if forward < microbatches and forward - backward < stages - stage:
            yield "F", forward
            forward += 1
        else:
            yield "B", backward
            backward += 1


class Device:
    """The tensors of a device, by name."""

    def __init__(self, fixed, offloads):
        self.tensors, self.offloads, self.seen = {"fixed": fixed}, offloads, []

    def held(self):
        """Return the bytes of the device, without those that are with the host."""
        hidden = {name: size for name, size in self.tensors.items() if name[0] == "hidden"}
        layers = {place: size for (_, place, _), size in hidden.items()}
        away = sum(hidden.values()) - sum(sorted(layers.values())[-2:]) if self.offloads else 0
        return sum(self.tensors.values()) - away

    def step(self, name, number, **meanwhile):
        """See what there is, with what there is meanwhile alone."""
        self.seen.append((name, number, self.held() + sum(meanwhile.values())))


def kept_of(layers, number, plan):
    """Yield name and bytes of what each layer of a stage keeps for the backward pass."""
    again, border = plan.again, layers[0].border
    for place, layer in enumerate(layers):
        if layer.hidden and again > 0:
            again -= 1
            yield ("hidden", place), layer.border
        else:
            yield ("hidden" if layer.hidden else "other", place), layer.kept
    if number > 0:
        yield ("other", "received"), border
    if number < plan.stages - 1:
        yield ("other", "sent"), -border


def walk(model, plan):
    """Return the steps of the stage that needs most: name, micro-batch (-1 for none), and bytes."""
    number, memory = footprint.fullest(model, plan)
    layers = footprint.stages_of(model, plan)[number]
    device = Device(
        memory.weights + memory.gradients + memory.optimizer, plan.offload in ("activations", "all")
    )
    gathered = footprint.gathered(model, plan, layers)
    in_backward = gathered + footprint.scattered(model, plan, layers) + footprint.before_sum(model, plan)
    loss = memory.meanwhile
    hidden = [layer.kept for layer in layers if layer.hidden]
    recomputed = max(hidden[: plan.again], default=0)
    device.step("rest", -1)
    for letter, microbatch in order_of(plan.schedule, plan.stages, number, plan.microbatches):
        kept = {(*name, microbatch): size for name, size in kept_of(layers, number, plan)}
        if letter == "F":
            device.tensors |= kept
            device.step("forward", microbatch, gathered=gathered)
            if loss:
                device.step("loss", microbatch, gathered=gathered, loss=loss)
            continue
        if loss:
            device.step("loss gradient", microbatch, buffers=in_backward, loss=loss)
        device.step("backward", microbatch, buffers=in_backward, recomputed=recomputed)
        for name in kept:
            del device.tensors[name]
    return device.seen
