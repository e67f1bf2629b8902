"""python3 -m unittest discover -s remat/testdata"""
import json
import unittest

from programlog import ProgramLog, View, replay


def whole(storage, size=100):
    return View(storage, "whole", size, size)


def part(storage, place, size=100):
    return View(storage, place, size, size // 4)


def written(log, operations):
    return [json.loads(line) for line in log.lines([1000 * (i + 1) for i in range(operations)])]


def brief(lines):
    """One word list a line, MEMORY and ALIAS joined to what they belong to."""
    out = []
    for f in lines:
        kind = f["INSTRUCTION"]
        if kind == "CALL":
            out.append(f"{','.join(f['RESULT'])}={f['NAME']}({','.join(f['ARGS'])}) {f['TIME']}")
        elif kind == "MUTATE":
            out.append(f"{f['NAME']}({','.join(f['ARGS'])})!{f['MUTATE']} {f['TIME']}")
        elif kind == "MEMORY":
            out[-1] += f" {f['NAME']}:{f['MEMORY']}"
        elif kind == "ALIAS":
            out[-1] += "" if f["ALIAS"] == "-1" else f"@{f['ALIAS']}"
        else:
            out.append(f"{kind} {f.get('NAME', f.get('ANNOTATION'))}")
    return out


class WrittenLog(unittest.TestCase):
    def check(self, log, operations, want):
        lines = written(log, operations)
        self.assertEqual(brief(lines), want)
        return replay(json.dumps(f) for f in lines)

    def test_a_chain_with_a_constant(self):
        log = ProgramLog()
        log.annotate("START")
        log.constant(whole("w"))
        log.operation("mm", [whole("w")], [whole("a")])
        log.operation("relu", [whole("a")], [whole("b", 60)])
        log.died("a")
        log.died("b")
        got = self.check(log, 2, [
            "ANNOTATE START",
            "CONSTANT x0 x0:100",
            "x1=mm(x0) 1000 x1:100",
            "x2=relu(x1) 2000 x2:60",
            "RELEASE x1",
            "RELEASE x2",
        ])
        self.assertEqual(got, (2, 260, 100, 3000, 0, 160))

    def test_views_alias_an_argument_and_go_after_their_last_use(self):
        log = ProgramLog()
        log.operation("mm", [whole("w")], [whole("a")])
        log.operation("view", [whole("w"), whole("a")], [part("a", "head")])
        log.operation("exp", [part("a", "head")], [whole("b")])
        log.died("a")
        self.check(log, 3, [
            "CONSTANT x0 x0:100",
            "x1=mm(x0) 1000 x1:100",
            "x2=view(x0,x1) 2000 x2:25@1",
            "x3=exp(x2) 3000 x3:100",
            "RELEASE x2",
            "RELEASE x1",
        ])

    def test_a_view_without_an_operation_is_made_from_its_root(self):
        log = ProgramLog()
        log.operation("mm", [], [whole("a")])
        log.operation("view", [whole("a")], [part("a", "head")])
        log.operation("exp", [part("a", "tail")], [whole("b")])
        self.check(log, 3, [
            "x0=mm() 1000 x0:100",
            "x1=view(x0) 2000 x1:25@0",
            "RELEASE x1",
            "x2=as_strided(x0) 2000 x2:25@0",
            "x3=exp(x2) 3000 x3:100",
            "RELEASE x2",
        ])

    def test_an_operation_in_place_makes_a_new_version_under_its_name(self):
        log = ProgramLog()
        log.operation("mm", [], [whole("a")])
        log.operation("relu_", [whole("a")], [whole("a")], [0])
        log.operation("exp", [whole("a")], [whole("b")])
        log.died("a")
        got = self.check(log, 3, [
            "x0=mm() 1000 x0:100",
            "relu_(x0)![0] 2000",
            "x1=exp(x0) 3000 x1:100",
            "RELEASE x0",
        ])
        self.assertEqual((got.leftover, got.peak), (100, 200))

    def test_writing_through_a_view_makes_the_whole_storage_anew(self):
        log = ProgramLog()
        log.operation("zeros", [], [whole("a")])
        log.operation("slice", [whole("a")], [part("a", "head")])
        log.operation("copy_", [part("a", "head"), whole("c")], [part("a", "head")], [0])
        log.operation("exp", [whole("a")], [whole("b")])
        log.died("a")
        got = self.check(log, 4, [
            "x0=zeros() 1000 x0:100",
            "x1=slice(x0) 2000 x1:25@0",
            "CONSTANT x2 x2:100",
            "copy_(x1,x2)![0] 3000",
            "RELEASE x0",
            "x3=as_strided(x1) 2000 x3:100@0",
            "x4=exp(x3) 4000 x4:100",
            "RELEASE x3",
            "RELEASE x1",
        ])
        self.assertEqual(got.leftover, 100)

    def test_results_that_share_a_storage_are_named_once(self):
        log = ProgramLog()
        log.operation("unbind_copy", [], [part("a", "head"), part("a", "tail"), whole("b")])
        log.operation("add", [part("a", "tail"), whole("b")], [whole("c")])
        self.check(log, 2, [
            "x0,x1=unbind_copy() 1000 x0:100 x1:100",
            "x2=as_strided(x0) 1000 x2:25@0",
            "x3=add(x2,x1) 2000 x3:100",
            "RELEASE x2",
        ])

    def test_an_operation_that_yields_and_writes_is_two_lines(self):
        log = ProgramLog()
        log.operation("norm", [whole("a"), whole("mean")], [whole("b"), whole("mean")], [1])
        self.check(log, 1, [
            "CONSTANT x0 x0:100",
            "CONSTANT x1 x1:100",
            "x2=norm(x0,x1) 500 x2:100",
            "norm(x0,x1)![1] 500",
        ])

    def test_an_operation_without_a_result_gets_one(self):
        log = ProgramLog()
        log.operation("item", [whole("a")], [])
        got = self.check(log, 1, ["CONSTANT x0 x0:100", "x1=item(x0) 1000 x1:8", "RELEASE x1"])
        self.assertEqual(got.leftover, 0)

    def test_a_storage_may_come_again_after_its_death(self):
        log = ProgramLog()
        log.operation("mm", [], [whole("a")])
        log.died("a")
        log.died("a")
        log.operation("mm", [], [whole("a", 50)])
        self.assertEqual(log.live(), ["a"])
        self.check(log, 2, ["x0=mm() 1000 x0:100", "RELEASE x0", "x1=mm() 2000 x1:50"])


class Replay(unittest.TestCase):
    def refused(self, *lines):
        with self.assertRaises(ValueError) as got:
            replay(lines)
        return str(got.exception)

    def test_a_name_that_is_not_defined(self):
        said = self.refused('{"INSTRUCTION":"MUTATE","NAME":"add_","ARGS":["x0"],"MUTATE":[0],"TIME":"1"}')
        self.assertIn("line 1", said)

    def test_a_result_without_memory(self):
        self.refused('{"INSTRUCTION":"CALL","NAME":"mm","RESULT":["x0"],"ARGS":[],"TIME":"1"}')

    def test_a_name_defined_twice(self):
        constant = ['{"INSTRUCTION":"CONSTANT","NAME":"x"}', '{"INSTRUCTION":"MEMORY","NAME":"x","MEMORY":"4"}']
        self.assertIn("line 3", self.refused(*constant, *constant))

    def test_copies_count_references(self):
        got = replay([
            '{"INSTRUCTION":"CALL","NAME":"mm","RESULT":["a"],"ARGS":[],"TIME":"1"}',
            '{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"10"}',
            '{"INSTRUCTION":"ALIAS","NAME":"a","ALIAS":"-1"}',
            '{"INSTRUCTION":"COPY","DST":"b","SRC":"a"}',
            '{"INSTRUCTION":"RELEASE","NAME":"a"}',
            '{"INSTRUCTION":"RELEASE","NAME":"never"}',
            '{"INSTRUCTION":"ANNOTATE","ANNOTATION":"BACKWARD"}',
        ])
        self.assertEqual((got.leftover, got.peak), (10, 10))


if __name__ == "__main__":
    unittest.main()
