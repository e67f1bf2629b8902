"""The training steps that record_logs.py records, by name: PROGRAMS has a function that builds the Program of each.

They compute in float32; their activations take many times the memory of their parameters.
"""
from .gan import gan
from .language import experts, transformer
from .recurrent import graph, lstm, treelstm
from .vision import densenet, inception, resnet, unet

PROGRAMS = {
    build.__name__: build
    for build in (resnet, densenet, inception, unet, transformer, lstm, treelstm, gan, experts, graph)
}
