"""A training step. The learning rates are zero, so that a step repeats exactly."""
import torch


class Program:
    """A training step: step(annotate) leaves no gradient; modules, optimizers and inputs are there from the start."""

    def __init__(self, modules, optimizers, inputs, step):
        self.modules, self.optimizers, self.inputs, self.step = modules, optimizers, inputs, step

    def constants(self):
        for module in self.modules:
            yield from module.parameters()
            yield from module.buffers()
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                yield from (v for v in state.values() if isinstance(v, torch.Tensor))
        yield from self.inputs


def training(model, inputs, optimizer="momentum"):
    """One step of a model whose forward yields the loss."""
    model = model.cuda().train()
    chosen = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.0, foreach=False, fused=False),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.9, foreach=False, fused=False),
        "adam": lambda p: torch.optim.Adam(p, lr=0.0, foreach=False, fused=False),
    }[optimizer](list(model.parameters()))

    def step(annotate):
        loss = model(*inputs)
        annotate("BACKWARD")
        loss.backward()
        del loss
        chosen.step()
        chosen.zero_grad(set_to_none=True)

    return Program([model], [chosen], inputs, step)
