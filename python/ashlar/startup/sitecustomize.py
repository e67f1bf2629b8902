"""Python runs this file at its start, in processes below `ashlar run`. It prepares for `import torch`, and then runs
the sitecustomize that this one hides."""

import os
import sys


def _import_ashlar():
    """Import the package that this file is part of, even if this Python has another one or none."""
    import importlib.util

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "ashlar", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["ashlar"] = module
    spec.loader.exec_module(module)


def _prepare():
    if sys.version_info < (3, 9) or os.environ.get("ASHLAR_ENABLE") not in ("1", "try"):
        return
    _import_ashlar()
    from ashlar import launch

    launch.enable_with_cuda()


def _run_hidden():
    """Run the next sitecustomize in sys.path, as Python would have without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _prepare()
finally:
    _run_hidden()
