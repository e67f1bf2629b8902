"""Networks for images."""
import torch
import torch.nn.functional as F
from torch import nn

from .training import training


def images(batch, size, classes=100):
    return torch.randn(batch, 3, size, size, device="cuda"), torch.randint(0, classes, (batch,), device="cuda")


class Unit(nn.Module):
    """A convolution, normed and rectified in place."""

    def __init__(self, inputs, outputs, kernel, stride=1, relu=True):
        super().__init__()
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, tuple(k // 2 for k in kernel), bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.relu = relu

    def forward(self, x):
        x = self.norm(self.conv(x))
        return F.relu_(x) if self.relu else x


class Classifier(nn.Module):
    """Features of images, pooled, and a linear layer: the loss."""

    def __init__(self, features, width, classes=100):
        super().__init__()
        self.features, self.last = features, nn.Linear(width, classes)

    def forward(self, x, label):
        return F.cross_entropy(self.last(self.features(x).mean((2, 3))), label)


class Residual(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            Unit(inputs, width, 1), Unit(width, width, 3, stride), Unit(width, 4 * width, 1, relu=False)
        )
        same = stride == 1 and inputs == 4 * width
        self.skip = nn.Identity() if same else Unit(inputs, 4 * width, 1, stride, relu=False)

    def forward(self, x):
        y = self.body(x)
        y += self.skip(x)
        return F.relu_(y)


def resnet():
    """ResNet-50."""
    layers, inputs = [Unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Residual(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    return training(Classifier(nn.Sequential(*layers), inputs), images(64, 224))


class Dense(nn.Module):
    """A block of DenseNet: each layer reads all layers before it."""

    def __init__(self, inputs, count, growth=32):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inputs + i * growth),
                nn.ReLU(inplace=True),
                Unit(inputs + i * growth, 4 * growth, 1),
                nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(count)
        )

    def forward(self, x):
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


def densenet():
    """DenseNet-121."""
    layers, width, counts = [Unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64, (6, 12, 24, 16)
    for count in counts:
        layers += [Dense(width, count), nn.BatchNorm2d(width + 32 * count), nn.ReLU(inplace=True)]
        width += 32 * count
        if count != counts[-1]:
            layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    return training(Classifier(nn.Sequential(*layers), width), images(32, 224))


class Branches(nn.Module):
    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def inception():
    """Inception of the third kind: squares, factored rows and columns, and forks, with pools beside them."""

    def chain(*units):
        return nn.Sequential(*(Unit(a, b, kernel) for a, b, kernel in units))

    def squares(n):
        return Branches(
            Unit(n, 64, 1), chain((n, 48, 1), (48, 64, 5)), chain((n, 64, 1), (64, 96, 3), (96, 96, 3)),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), Unit(n, 32, 1)),
        )

    def factored(n, w):
        row, column = (1, 7), (7, 1)
        return Branches(
            Unit(n, 192, 1), chain((n, w, 1), (w, w, row), (w, 192, column)),
            chain((n, w, 1), (w, w, column), (w, w, row), (w, w, column), (w, 192, row)),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), Unit(n, 192, 1)),
        )

    def forks(n):
        fork = lambda: Branches(Unit(384, 384, (1, 3)), Unit(384, 384, (3, 1)))
        return Branches(
            Unit(n, 320, 1), nn.Sequential(Unit(n, 384, 1), fork()),
            nn.Sequential(chain((n, 448, 1), (448, 384, 3)), fork()),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), Unit(n, 192, 1)),
        )

    layers = [
        Unit(3, 32, 3, 2), chain((32, 32, 3), (32, 64, 3)), nn.MaxPool2d(3, 2, 1),
        chain((64, 80, 1), (80, 192, 3)), nn.MaxPool2d(3, 2, 1), squares(192), squares(256), squares(256),
        Branches(Unit(256, 384, 3, 2), nn.Sequential(Unit(256, 96, 3), Unit(96, 128, 3, 2)), nn.MaxPool2d(3, 2, 1)),
        factored(768, 128), factored(768, 160), factored(768, 160), factored(768, 192),
        Branches(Unit(768, 320, 3, 2), nn.Sequential(Unit(768, 192, 1), Unit(192, 192, 3, 2)), nn.MaxPool2d(3, 2, 1)),
        forks(1280), forks(2048),
    ]
    return training(Classifier(nn.Sequential(*layers), 2048), images(48, 256), "sgd")


class UNet(nn.Module):
    def __init__(self, width=32, depth=5):
        super().__init__()
        sizes = [width << i for i in range(depth)]
        three = lambda a, b: nn.Sequential(Unit(a, b, 3), Unit(b, b, 3), Unit(b, b, 3))
        self.down = nn.ModuleList(three(a, b) for a, b in zip([3] + sizes, sizes))
        self.up = nn.ModuleList(three(a + b, a) for a, b in zip(sizes, sizes[1:]))
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x, mask):
        kept, y = [], x
        for i, layer in enumerate(self.down):
            y = layer(F.max_pool2d(y, 2) if i else y)
            kept.append(y)
        kept.pop()
        for layer in reversed(self.up):
            y = layer(torch.cat([F.interpolate(y, scale_factor=2.0, mode="bilinear"), kept.pop()], 1))
        return F.binary_cross_entropy_with_logits(self.last(y), mask)


def unet():
    return training(UNet(), (torch.randn(8, 3, 320, 320, device="cuda"), torch.rand(8, 1, 320, 320, device="cuda")))
