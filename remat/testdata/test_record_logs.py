"""The recorder on tensors that are not PyTorch's: `torch` is a stub here."""
import json
import sys
import types
import unittest

from programlog import ProgramLog, replay


class Storage:
    made = 0

    def __init__(self, size):
        Storage.made += 1
        self._cdata, self.size, self.dead = Storage.made, size, False

    def nbytes(self):
        return self.size


class Tensor:
    is_cuda, dtype = True, "float32"

    def __init__(self, storage, shape, offset=0):
        self.storage, self.shape, self.offset = storage, shape, offset

    untyped_storage = lambda self: self.storage
    storage_offset = lambda self: self.offset
    stride = lambda self: (1,)
    numel = lambda self: self.shape[0]
    element_size = lambda self: 4


class OnHost(Tensor):
    is_cuda = False


class WeakStorage:
    def __init__(self, storage):
        self.storage = storage

    def expired(self):
        return self.storage.dead


class Event:
    now = 0.0  # ms, advanced by 3 us a record

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        Event.now += 0.003
        self.at = Event.now

    def elapsed_time(self, other):
        return other.at - self.at


class Mode:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def stubs():
    """Modules enough to import record_logs."""
    cuda = types.SimpleNamespace(Event=Event, _sleep=lambda cycles: None, synchronize=lambda: None)
    torch = types.ModuleType("torch")
    torch.Tensor, torch.cuda = Tensor, cuda
    reductions = types.ModuleType("torch.multiprocessing.reductions")
    reductions.StorageWeakRef = WeakStorage
    dispatch = types.ModuleType("torch.utils._python_dispatch")
    dispatch.TorchDispatchMode = Mode
    table = types.ModuleType("programs.table")
    table.PROGRAMS = {}
    found = {m.__name__: m for m in (torch, reductions, dispatch, table)}
    for name in ("torch.multiprocessing", "torch.utils", "programs"):
        found[name] = types.ModuleType(name)
    return found


class Operation:
    """An operation with a schema: "a" reads, "a!" writes."""

    def __init__(self, name, arguments, work):
        alias = lambda a: types.SimpleNamespace(is_write=True) if a.endswith("!") else None
        self._schema = types.SimpleNamespace(
            name="aten::" + name,
            arguments=[types.SimpleNamespace(name=a.rstrip("!"), alias_info=alias(a)) for a in arguments.split()],
        )
        self.work = work

    def __call__(self, *args, **kwargs):
        return self.work(*args, **kwargs)


def fresh(*_, **__):
    Event.now += 0.005
    return Tensor(Storage(400), (100,))


class Recorder(unittest.TestCase):
    def setUp(self):
        self.before = dict(sys.modules)
        sys.modules.update(stubs())
        import record_logs

        self.module, self.log = record_logs, ProgramLog()
        self.recorder = record_logs.Recorder(self.log)

    def tearDown(self):
        for name in set(sys.modules) - set(self.before):
            del sys.modules[name]
        sys.modules.update(self.before)

    def run_operation(self, name, arguments, work, *args, **kwargs):
        return self.recorder.__torch_dispatch__(Operation(name, arguments, work), (), args, kwargs)

    def lines(self):
        self.recorder.storages.sweep(True)
        lines = list(self.log.lines(self.recorder.times()))
        replay(lines)
        return [f"{f['INSTRUCTION']} {f.get('NAME')}" for f in map(json.loads, lines) if "ALIAS" not in f]

    def test_lists_keywords_and_writes(self):
        w, b = fresh(), fresh()
        self.recorder.constants([w, OnHost(Storage(8), (2,))])
        a = self.run_operation("cat", "tensors dim", fresh, [w, None, w], 0)
        self.run_operation("add", "self other out!", lambda *_, out: out, w, b, out=a)
        self.assertEqual(self.lines(), [
            "CONSTANT x0", "MEMORY x0", "CALL cat", "MEMORY x1", "CONSTANT x2", "MEMORY x2", "MUTATE add",
        ])
        self.assertEqual(self.recorder.names, ["cat", "add"])
        self.assertEqual(self.recorder.times(), [5000, 1000])

    def test_what_does_not_touch_the_device_is_left_out(self):
        host = OnHost(Storage(8), (2,))
        self.run_operation("add", "self other", lambda *_: host, host, host)
        self.run_operation("is_pinned", "self", lambda _: False, fresh())
        self.assertEqual((self.lines(), self.recorder.names), ([], []))
        self.run_operation("_local_scalar_dense", "self", lambda _: 1.0, fresh())
        self.assertIn("CALL _local_scalar_dense", self.lines())

    def test_storages_are_released_before_the_next_operation(self):
        a = self.run_operation("ones", "", fresh)
        head = self.run_operation("slice", "self", lambda t: Tensor(t.storage, (10,)), a)
        b = self.run_operation("exp", "self", fresh, head)
        a.storage.dead = True
        self.run_operation("exp", "self", fresh, b)
        got = [x for x in self.lines() if not x.startswith("MEMORY")]
        want = ["CALL ones", "CALL slice", "CALL exp", "RELEASE x1", "RELEASE x0", "CALL exp"]
        self.assertEqual(got, want)

    def test_a_storage_that_dies_late_is_found_by_the_sweep(self):
        a, b = self.run_operation("ones", "", fresh), self.run_operation("ones", "", fresh)
        for _ in range(3 * self.module.SWEEP):
            self.run_operation("exp", "self", lambda t: t, b)
        a.storage.dead = True
        for _ in range(self.module.SWEEP):
            self.run_operation("exp", "self", lambda t: t, b)
        self.assertNotIn(a.storage._cdata, self.log.live())

    def test_medians_use_the_passes_with_the_same_operations(self):
        passes = [(["a", "b"], [1, 10]), (["a"], [7]), (["a", "b"], [3, 30]), (["a", "b"], [2, 20])]
        self.assertEqual(self.module.medians(passes), ([2, 20], 3))


if __name__ == "__main__":
    unittest.main()
