"""Logs of programs in the format of DTR's simulator: how they are written and how they are checked.

A log is JSON lines; all values but lists are strings. Kirisame et al., Dynamic Tensor Rematerialization (ICLR 2021),
record PyTorch programs so. This module knows no tensors: record_logs.py gives it views of storages.
"""
import collections
import json

# A view that an operation reads or yields: its storage (a key that is unique while the storage lives), its place in
# the storage (any hashable value), the bytes of the storage and the bytes of the view.
View = collections.namedtuple("View", "storage place storage_bytes bytes")

# The peak counts the old and the new version of a storage that an operation writes in place. The leftover is what has
# references at the end, without the constants and their newest versions. The bottleneck is without the constants.
Summary = collections.namedtuple("Summary", "operations peak constants nanoseconds leftover bottleneck")


class _Storage:
    """The names of a storage: root owns the memory of its newest version, views are the others by place."""

    def __init__(self, root, place, constant=False):
        self.root = root
        self.constant = constant
        self.views = {place: root}


class ProgramLog:
    """Collects what a program does; lines() yields the log.

    A storage is released when `died` says so. The name of a view is released after its last use. Before an operation
    reads a view for which there is no name (autograd makes some without an operation, and an operation in place makes
    those of the version before it stale) the log gets an operation as_strided that makes it.
    """

    def __init__(self):
        self._events = []  # (kind, fields...), see lines
        self._storages = {}
        self._roots = set()
        self._last_use = {}
        self._names = 0
        self._operations = 0

    def annotate(self, annotation):
        self._events.append(("ANNOTATE", annotation))

    def constant(self, view):
        """Declares memory that is there from the start and stays."""
        if view.storage in self._storages:
            return
        name = self._new_name()
        self._events.append(("CONSTANT", name, view.storage_bytes))
        self._own(view, name, True)

    def operation(self, name, args, results, written=()):
        """Adds an operation that reads args (views), yields results (views) and writes args[i] for i in written.

        Its time is the next entry of the times that lines gets. Storages of args that are new become constants.
        """
        index = self._operations
        self._operations += 1
        names = [self._name_of(a) for a in args]
        written = self._one_per_storage(args, written)
        made = self._made(args, results, {args[i].storage for i in written})
        both = 2 if made and written else 1  # such an operation becomes two lines, with half of the time each
        if made or not written:
            self._call(name, index, both, args, names, made)
        if written:
            self._mutate(name, index, both, args, names, written)

    def died(self, storage):
        """Says that the memory of a storage is free."""
        known = self._storages.pop(storage, None)
        if known is not None:
            self._release(known.root)

    def live(self):
        """The storages that are neither dead nor constants."""
        return [s for s, known in self._storages.items() if not known.constant]

    def lines(self, times):
        """The log; times has the nanoseconds of each operation."""
        views = sorted(t for t in self._view_times(times))
        view_time = views[len(views) // 2] if views else 1000
        done = collections.defaultdict(list)  # names of views by the event after which they are released
        for name, at in self._last_use.items():
            if name not in self._roots:
                done[at].append(name)
        for at, event in enumerate(self._events):
            yield from self._render(event, times, view_time)
            for name in done[at]:
                yield _line(INSTRUCTION="RELEASE", NAME=name)

    def _view_times(self, times):
        for kind, *fields in self._events:
            if kind == "CALL" and fields[1] is not None and all(alias >= 0 for _, _, alias in fields[4]):
                yield times[fields[1]]

    def _render(self, event, times, view_time):
        kind, *fields = event
        if kind == "ANNOTATE":
            yield _line(INSTRUCTION="ANNOTATE", ANNOTATION=fields[0])
        elif kind == "RELEASE":
            yield _line(INSTRUCTION="RELEASE", NAME=fields[0])
        elif kind == "CONSTANT":
            yield _line(INSTRUCTION="CONSTANT", NAME=fields[0])
            yield _line(INSTRUCTION="MEMORY", NAME=fields[0], MEMORY=str(fields[1]))
        elif kind == "CALL":
            name, index, parts, args, made = fields
            time = view_time if index is None else times[index] // parts
            yield _line(INSTRUCTION="CALL", NAME=name, RESULT=[m[0] for m in made], ARGS=args, TIME=str(time))
            for result, size, alias in made:
                yield _line(INSTRUCTION="MEMORY", NAME=result, MEMORY=str(size))
                yield _line(INSTRUCTION="ALIAS", NAME=result, ALIAS=str(alias))
        elif kind == "MUTATE":
            name, index, parts, args, written = fields
            time = times[index] // parts
            yield _line(INSTRUCTION="MUTATE", NAME=name, ARGS=args, MUTATE=written, TIME=str(time))

    def _new_name(self):
        self._names += 1
        return f"x{self._names - 1}"

    def _own(self, view, name, constant=False):
        self._storages[view.storage] = _Storage(name, view.place, constant)
        self._roots.add(name)

    def _used(self, names):
        for name in names:
            self._last_use[name] = len(self._events) - 1

    def _release(self, name):
        self._events.append(("RELEASE", name))

    def _name_of(self, view):
        self.constant(view)
        known = self._storages[view.storage]
        if view.place not in known.views:
            name = known.views[view.place] = self._new_name()
            self._events.append(("CALL", "as_strided", None, 1, [known.root], [(name, view.bytes, 0)]))
            self._used([name, known.root])
        return known.views[view.place]

    @staticmethod
    def _one_per_storage(args, written):
        first = {}
        for i in written:
            first.setdefault(args[i].storage, i)
        return sorted(first.values())

    def _made(self, args, results, written):
        """The results that the log names: (view, index of the argument that it aliases or -1)."""
        positions = {}
        for i, a in enumerate(args):
            positions.setdefault(a.storage, i)
        made, seen = [], set()
        for r in results:
            if r.storage in written or r in seen:
                continue
            if r.storage in positions:
                made.append((r, positions[r.storage]))
            elif r.storage not in self._storages and r.storage not in {v.storage for v, _ in made}:
                made.append((r, -1))
            seen.add(r)
        return made

    def _call(self, name, index, parts, args, names, made):
        results = []
        for view, alias in made:
            result = self._new_name()
            results.append((result, view.bytes if alias >= 0 else view.storage_bytes, alias))
            if alias < 0:
                self._own(view, result)
            else:
                self._storages[view.storage].views[view.place] = result
        unnamed = not results  # the format wants a result; a number that is read from the device has eight bytes
        if unnamed:
            results = [(self._new_name(), 8, -1)]
        self._events.append(("CALL", name, index, parts, list(names), results))
        self._used(names)
        self._used(result for result, _, _ in results)

    def _mutate(self, name, index, parts, args, names, written):
        self._events.append(("MUTATE", name, index, parts, list(names), written))
        self._used(names)
        for i in written:
            known, new = self._storages[args[i].storage], names[i]
            self._own(args[i], new, known.constant)
            if known.root != new:
                self._release(known.root)


def _line(**fields):
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)


class _Replay:
    """Runs a log with memory without end."""

    def __init__(self):
        self.tensors = {}  # name: [storage, references of this version]
        self.bytes = self.peak = self.constants = self.nanoseconds = self.operations = self.bottleneck = 0

    def new(self, size):
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        return {"bytes": size, "references": 0, "constant": False, "stays": False}

    def bind(self, name, storage):
        storage["references"] += 1
        self.tensors[name] = storage

    def drop(self, storage):
        storage["references"] -= 1
        if storage["references"] == 0 and not storage["constant"]:
            self.bytes -= storage["bytes"]

    def storages(self, names):
        return list({id(self.tensors[n]): self.tensors[n] for n in names}.values())

    def ran(self, fields, read, made):
        self.operations += 1
        self.nanoseconds += int(fields["TIME"])
        need = sum(s["bytes"] for s in read if not s["constant"]) + sum(s["bytes"] for s in made)
        self.bottleneck = max(self.bottleneck, need)


def replay(lines):
    """Checks a log and yields its Summary; a ValueError says what is wrong and where."""
    run = _Replay()
    pending = iter(())
    lines = enumerate(lines, 1)
    try:
        for number, line in lines:
            fields = json.loads(line)
            _step(run, fields, lambda: json.loads(next(lines)[1]))
    except (KeyError, IndexError, StopIteration, ValueError) as e:
        raise ValueError(f"line {number}: {type(e).__name__}: {e}: {line.strip()}") from e
    left = {id(s): s["bytes"] for s in run.tensors.values() if not s["stays"]}
    return Summary(run.operations, run.peak, run.constants, run.nanoseconds, sum(left.values()), run.bottleneck)


def _step(run, fields, following):
    kind = fields["INSTRUCTION"]
    if kind == "CONSTANT":
        storage = run.new(_memory(following(), fields["NAME"]))
        storage["constant"] = storage["stays"] = True
        run.constants += storage["bytes"]
        _define(run, fields["NAME"], storage)
    elif kind == "CALL":
        _call(run, fields, following)
    elif kind == "MUTATE":
        read = run.storages(fields["ARGS"])
        old = [run.tensors[fields["ARGS"][i]] for i in fields["MUTATE"]]
        new = [run.new(s["bytes"]) for s in old]
        run.ran(fields, read, new)
        for i, before, after in zip(fields["MUTATE"], old, new):
            after["stays"] = before["stays"]
            run.bind(fields["ARGS"][i], after)
            run.drop(before)
    elif kind == "COPY":
        _define(run, fields["DST"], run.tensors[fields["SRC"]])
    elif kind == "COPY_FROM":
        before = run.tensors[fields["DST"]]
        run.bind(fields["DST"], run.tensors[fields["SRC"]])
        run.drop(before)
    elif kind == "RELEASE":
        if fields["NAME"] in run.tensors:
            run.drop(run.tensors.pop(fields["NAME"]))
    elif kind != "ANNOTATE":
        raise ValueError("unknown instruction")


def _call(run, fields, following):
    read = run.storages(fields["ARGS"])
    made = []
    for name in fields["RESULT"]:
        size, alias = _memory(following(), name), following()
        if alias["INSTRUCTION"] != "ALIAS" or alias["NAME"] != name:
            raise ValueError(f"no ALIAS of {name}")
        at = int(alias["ALIAS"])
        if at < 0:
            storage = run.new(size)
            made.append(storage)
        else:
            storage = run.tensors[fields["ARGS"][at]]
        _define(run, name, storage)
    run.ran(fields, read, made)


def _memory(fields, name):
    if fields["INSTRUCTION"] != "MEMORY" or fields["NAME"] != name:
        raise ValueError(f"no MEMORY of {name}")
    return int(fields["MEMORY"])


def _define(run, name, storage):
    if name in run.tensors:
        raise ValueError(f"{name} is defined twice")
    run.bind(name, storage)
