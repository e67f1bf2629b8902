"""enable() and the calls after it, on a stub library, a stub shim and a stub torch."""

import unittest

from installation import Installation, library

ENABLE = "import ashlar; ashlar.enable()\n"


class Enable(unittest.TestCase):
    def test_importing_the_package_imports_neither_torch_nor_ctypes(self):
        out = Installation().python("import ashlar, sys; print('torch' in sys.modules, 'ctypes' in sys.modules)")
        self.assertEqual(out, "False False")

    def test_the_prebuilt_shim_is_installed_on_the_initialized_library(self):
        app = Installation()
        out = app.python(
            "import ashlar; print(ashlar.is_enabled(), ashlar.tier(), ashlar.backend())\n"
            "print(ashlar.enable('limit:1GiB,name:native'), ashlar.is_enabled(), ashlar.tier(), ashlar.backend())"
        )
        self.assertEqual(out.splitlines(), ["False None None", "True True shim paged"])
        self.assertEqual(app.calls(), ["init 2 limit:1GiB", "install name:native,graphs:native,ipc:native", "closing"])

    def test_a_second_call_is_a_no_op_unless_its_settings_differ(self):
        app = Installation()
        text = app.error(
            ENABLE + "ashlar.enable(); ashlar.enable('', tier='auto')\nprint('so far')\nashlar.enable('limit:1GiB')"
        )
        self.assertIn("SettingsError: ashlar: already enabled", text)
        self.assertEqual(app.calls().count("install name:ashlar,graphs:native,ipc:native"), 1)

    def test_settings_come_from_the_variable(self):
        app = Installation()
        app.python(ENABLE, ASHLAR_ALLOC_CONF="backend:caching,tier:shim")
        self.assertEqual(app.calls()[0], "init 2 backend:caching")

    def test_a_setting_that_the_library_rejects_is_an_error_with_its_text(self):
        text = Installation().error(ENABLE, ASHLAR_ALLOC_CONF="colour:red")
        self.assertIn("init: unknown setting colour: known are backend and limit", text)

    def test_what_prevents_it_is_named(self):
        for variables, part in (
            ({"STUB_DEVICES": "0"}, "PyTorch sees no CUDA device"),
            ({"STUB_TORCH_CUDA": ""}, "has no CUDA"),
            ({"STUB_TORCH_HIP": "6.2"}, "is for ROCm"),
            ({"STUB_TORCH_FAILS": "1"}, "PyTorch cannot be imported: libcudnn.so.9"),
            ({"STUB_BACKEND": "pluggable"}, "PyTorch uses the allocator 'pluggable'"),
            ({"STUB_REFUSES": "1"}, "a capture is underway"),
            ({"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, "selects backend:cudaMallocAsync"),
            ({"ASHLAR_ALLOC_CONF": "tier:other"}, "tier can be"),
        ):
            with self.subTest(part):
                self.assertIn(part, Installation().error(ENABLE, **variables))

    def test_expandable_segments_are_warned_of(self):
        result = Installation().run("-c", ENABLE, PYTORCH_ALLOC_CONF="expandable_segments:True")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr.count("private pools"), 1)

    def test_without_strict_pytorch_keeps_its_allocator_and_a_warning_says_so(self):
        result = Installation().run(
            "-c", "import ashlar; print(ashlar.enable(strict=False), ashlar.is_enabled())", STUB_DEVICES="0"
        )
        self.assertEqual(result.stdout.strip(), "False False")
        self.assertIn("PyTorch sees no CUDA device", result.stderr)
        self.assertIn("PyTorch keeps its own allocator", result.stderr)

    def test_nccl_does_not_register_memory_unless_asked_to(self):
        code = ENABLE + "import os; print(os.environ['NCCL_GRAPH_REGISTER'], os.environ['NCCL_LOCAL_REGISTER'])"
        self.assertEqual(Installation().python(code), "0 0")
        self.assertEqual(Installation().python(code, NCCL_LOCAL_REGISTER="1"), "0 1")

    def test_the_library_is_told_of_the_end_after_later_handlers(self):
        app = Installation()
        app.python(ENABLE + "import atexit; atexit.register(lambda: ashlar.set_limit(5) or ashlar.unpin(8))")
        self.assertEqual(app.calls()[-2:], ["unpin 8", "closing"])

    def test_attempts_from_several_threads_install_once(self):
        app = Installation()
        app.python(
            "import ashlar, threading\n"
            "threads = [threading.Thread(target=ashlar.enable) for _ in range(8)]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]\nassert ashlar.is_enabled()"
        )
        self.assertEqual(app.calls().count("install name:ashlar,graphs:native,ipc:native"), 1)


    def test_enable_in_one_thread_and_import_in_another_do_not_wait_for_each_other(self):
        app = Installation()
        app.python(
            "import ashlar, threading\nfrom ashlar import launch\n"
            "launch.enable_with_cuda()\n"
            "calls = (lambda: __import__('torch').cuda.init(), ashlar.enable)\n"
            "threads = [threading.Thread(target=call) for call in calls * 4]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]\nassert ashlar.is_enabled()",
            STUB_SLOW_IMPORT="0.3",
        )
        self.assertEqual(app.calls().count("install name:ashlar,graphs:native,ipc:native"), 1)


class Tiers(unittest.TestCase):
    def test_auto_takes_the_prebuilt_shim_else_compiles_one(self):
        self.assertEqual(Installation().python(ENABLE + "print(ashlar.tier())"), "shim")
        self.assertEqual(Installation(prebuilt=False).python(ENABLE + "print(ashlar.tier())"), "jit")
        self.assertEqual(Installation().python("import ashlar; ashlar.enable(tier='jit'); print(ashlar.tier())"), "jit")
        self.assertEqual(Installation().python(ENABLE + "print(ashlar.tier())", ASHLAR_ALLOC_CONF="tier:jit"), "jit")

    def test_a_shim_for_another_pytorch_cuda_or_abi_is_not_taken(self):
        for variables in (
            {"STUB_TORCH_VERSION": "2.10.1+cu130"}, {"STUB_TORCH_CUDA": "12.8"}, {"STUB_TORCH_ABI": "0"},
        ):  # fmt: skip
            with self.subTest(variables):
                text = Installation().error("import ashlar; ashlar.enable(tier='shim')", **variables)
                self.assertIn("no prebuilt shim pt2", text)
                self.assertIn("this installation has: pt211-cu13-abi1.so", text)

    def test_a_patch_release_takes_the_shim_of_its_minor_release(self):
        self.assertEqual(
            Installation().python(ENABLE + "print(ashlar.tier())", STUB_TORCH_VERSION="2.11.2+cu130"), "shim"
        )

    def test_a_shim_whose_name_lies_is_refused(self):
        app = Installation(prebuilt=False)
        app.add_shim("pt211-cu13-abi1.so", built_for="2.10.0")
        text = app.error("import ashlar; ashlar.enable(tier='shim')")
        self.assertIn("is for PyTorch 2.10.0, and this is PyTorch 2.11.0+cu130", text)

    def test_auto_compiles_a_shim_if_the_prebuilt_one_cannot_be_loaded(self):
        app = Installation()
        (app.package / "shims" / "pt211-cu13-abi1.so").write_text("of a newer system")
        result = app.run("-c", ENABLE + "print(ashlar.tier())")
        self.assertEqual(result.stdout.strip(), "jit")
        self.assertIn("pt211-cu13-abi1.so cannot be loaded", result.stderr)

    def test_strict_auto_does_not_fall_back_to_the_pluggable_tier(self):
        text = Installation(prebuilt=False).error(ENABLE, PATH="/nonexistent")
        self.assertIn("no C++ compiler", text)
        self.assertIn("tier:pluggable", text)

    def test_auto_without_strict_does(self):
        app = Installation(prebuilt=False)
        (app.package / "shim" / "shim.cpp").write_text("#error unfinished\n")
        result = app.run("-c", "import ashlar; print(ashlar.enable(strict=False), ashlar.tier())")
        self.assertEqual(result.stdout.strip(), "True pluggable")
        self.assertIn("unfinished", result.stderr)
        self.assertIn("using the pluggable tier", result.stderr)

    def test_other_failures_do_not_lead_there(self):
        app = Installation()
        for variables, part in (
            ({"ASHLAR_ALLOC_CONF": "colour:red"}, "unknown setting"), ({"STUB_REFUSES": "1"}, "capture"),
        ):  # fmt: skip
            result = app.run("-c", "import ashlar; print(ashlar.enable(strict=False), ashlar.tier())", **variables)
            self.assertEqual(result.stdout.strip(), "False None")
            self.assertIn(part, result.stderr)
            self.assertNotIn("pluggable", result.stderr)

    def test_an_unknown_tier_is_an_error(self):
        self.assertIn("tier can be", Installation().error("import ashlar; ashlar.enable(tier='best')"))


class Versions(unittest.TestCase):
    def test_an_older_library_is_refused(self):
        app = Installation(stub_library=library("-DSTUB_VERSION=0"))
        self.assertIn("is older than this package", app.error(ENABLE))

    def test_a_table_that_is_too_short_is_refused(self):
        app = Installation(stub_library=library("-DSTUB_BYTES=100"))
        self.assertIn("(build stub) has version 1 of the interface with 100 bytes", app.error(ENABLE))

    def test_a_newer_library_is_accepted(self):
        app = Installation(stub_library=library("-DSTUB_VERSION=7", "-DSTUB_BYTES=1000"))
        self.assertEqual(app.python(ENABLE + "print(ashlar.is_enabled())"), "True")

    def test_a_missing_library_is_named(self):
        self.assertIn("install the wheel", Installation(has_library=False).error(ENABLE))

    def test_a_file_that_is_no_library_is_refused(self):
        app = Installation()
        (app.package / "lib" / "libashlar.so").write_text("text")
        self.assertIn("cannot be loaded", app.error(ENABLE))


class Calls(unittest.TestCase):
    def test_before_enable_calls_are_errors_and_native_pool_is_not(self):
        out = Installation().python(
            "import ashlar\nwith ashlar.native_pool(): pass\n"
            "for call in (ashlar.stats, ashlar.get_limit, lambda: ashlar.set_limit(1), lambda: ashlar.pin(1)):\n"
            "    try: call()\n"
            "    except ashlar.AshlarError as err: print(err)"
        )
        self.assertEqual(out.splitlines(), ["ashlar: not enabled: call ashlar.enable() first"] * 4)

    def test_stats_have_the_keys_of_torch_and_the_figures_of_the_library(self):
        out = Installation().python(
            ENABLE + "s = ashlar.stats()\n"
            "print(len(s), s['allocation.all.current'], s['allocation.all.freed'], s['oversize_segments.peak'],\n"
            "      s['requested_bytes.large_pool.freed'], s['num_ooms'], s['max_split_size'], s['stalls'], s['limit'])"
        )
        self.assertEqual(out, f"{9 * 3 * 4 + 2 * 4 + 6 + 6} 1 4 5 77 6 -1 9 0")

    def test_limits_bound_both_allocators(self):
        out = Installation().python(
            ENABLE + "ashlar.set_limit(1 << 30); print(ashlar.get_limit('cuda:0'))\n"
            "for limit in ((-1,), (1.5,), (1, 7)):\n"
            "    try: ashlar.set_limit(*limit)\n"
            "    except ashlar.AshlarError as err: print(err)"
        ).splitlines()
        self.assertEqual(out[0], str(1 << 30))
        self.assertIn("from 0 on, not -1", out[1])
        self.assertIn("from 0 on, not 1.5", out[2])
        self.assertEqual(out[3], "ashlar: set_limit: no such device")

    def test_native_pool_nests_and_ends_after_an_exception(self):
        app = Installation()
        app.python(
            ENABLE + "try:\n    with ashlar.native_pool():\n        with ashlar.native_pool(): 1 / 0\n"
            "except ZeroDivisionError: pass"
        )
        self.assertEqual(app.calls()[2:6], ["push outer", "push inner", "pop inner", "pop outer"])

    def test_pin_takes_the_storage_and_returns_what_unpin_needs(self):
        app = Installation()
        out = app.python(
            ENABLE + "import torch\nt = torch.Tensor(8192)\naddress = ashlar.pin(t)\nashlar.pin(t)\nashlar.unpin(t)\n"
            "del t\nashlar.unpin(address)\n"
            "try: ashlar.pin(torch.Tensor(13))\nexcept ashlar.AshlarError as err: print(err, err.status)"
        )
        self.assertEqual(app.calls()[2:6], ["pin 8192", "pin 8192", "unpin 8192", "unpin 8192"])
        self.assertTrue(out.startswith("ashlar: pin: the tensor is not in Ashlar's memory"), out)
        self.assertTrue(out.endswith(" 2"), out)


class Fork(unittest.TestCase):
    def test_a_child_does_not_enter_the_library(self):
        app = Installation()
        out = app.python(
            ENABLE + "import os, sys\nsys.stdout.flush()\n"
            "if os.fork() == 0:\n"
            "    for call in (ashlar.stats, lambda: ashlar.set_limit(1), lambda: ashlar.pin(1), ashlar.get_limit,\n"
            "                 ashlar.native_pool().__enter__):\n"
            "        try: call()\n"
            "        except ashlar.AshlarError as err: print(err.status)\n"
            "    print(ashlar.is_enabled(), ashlar.backend())\n    sys.exit()\n"
            "os.wait()"
        )
        self.assertEqual(out.splitlines(), ["3"] * 5 + ["True paged"])
        self.assertEqual(app.calls(), ["init 2 ", "install name:ashlar,graphs:native,ipc:native", "closing"])  # one, by the parent

    def test_a_child_that_enables_for_the_first_time_may(self):
        out = Installation().python(
            "import ashlar, os, sys\n"
            "if os.fork() == 0:\n    ashlar.enable(); print(ashlar.is_enabled()); sys.exit()\nos.wait()"
        )
        self.assertEqual(out, "True")


if __name__ == "__main__":
    unittest.main()
