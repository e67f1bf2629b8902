import sys
import types

from .. import _C


class ContextProp:
    def __init__(self, getter, setter):
        self.getter, self.setter = getter, setter

    def __get__(self, instance, owner):
        return self.getter()

    def __set__(self, instance, value):
        self.setter(value)


class _Cudnn(types.ModuleType):
    benchmark = ContextProp(_C._get_cudnn_benchmark, _C._set_cudnn_benchmark)


cudnn = sys.modules[__name__ + ".cudnn"] = _Cudnn(__name__ + ".cudnn")
