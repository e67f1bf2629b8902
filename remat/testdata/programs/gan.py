"""An unrolled generative adversarial network."""
import torch
import torch.nn.functional as F
from torch import nn

from .training import Program


class Generator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        sizes = [8 * width, 4 * width, 2 * width, width]
        layers = [nn.ConvTranspose2d(128, sizes[0], 4, bias=False), nn.BatchNorm2d(sizes[0]), nn.ReLU(True)]
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]
        self.body = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, noise):
        return self.body(noise)


def judge(parameters, x):
    """The discriminator as a function of its parameters: weight and bias of each convolution."""
    for i in range(0, len(parameters), 2):
        last = i == len(parameters) - 2
        x = F.conv2d(x, parameters[i], parameters[i + 1], 1 if last else 2, 0 if last else 1)
        x = x if last else F.leaky_relu(x, 0.2)
    return x


def gan(batch=128, unrolled=5):
    """An unrolled GAN: the generator's loss looks through steps of the discriminator, by second derivatives."""
    width, real, noise = 64, torch.randn(batch, 3, 64, 64, device="cuda"), torch.randn(batch, 128, 1, 1, device="cuda")
    sizes = [3, width, 2 * width, 4 * width, 8 * width]
    layers = [nn.Conv2d(a, b, 4, 2, 1) for a, b in zip(sizes, sizes[1:])] + [nn.Conv2d(sizes[-1], 1, 4)]
    maker, judges = Generator(width).cuda(), nn.ModuleList(layers).cuda()
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.0, foreach=False, fused=False) for m in (maker, judges)]

    def loss_of(parameters, fake):
        return F.softplus(-judge(parameters, real)).mean() + F.softplus(judge(parameters, fake)).mean()

    def clear():
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(annotate):
        parameters = list(judges.parameters())
        fake, now = maker(noise), parameters
        for _ in range(unrolled):
            slopes = torch.autograd.grad(loss_of(now, fake), now, create_graph=True)
            now = [torch.sub(p, s, alpha=1e-3) for p, s in zip(now, slopes)]
        loss = F.softplus(-judge(now, fake)).mean()
        del now, slopes
        annotate("BACKWARD")
        loss.backward()
        del loss
        optimizers[0].step()
        clear()
        loss_of(parameters, fake.detach()).backward()
        optimizers[1].step()
        clear()

    return Program([maker, judges], optimizers, (real, noise), step)
