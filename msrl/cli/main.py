"""The command `msrl`: arguments in, exit code out.

0 is success; 2 means that what was asked for cannot be done and the message says what can; 1 that something failed
while training, or that results differ; 128 + n that signal n ended it. Errors of our family are told in words; a
traceback goes before them where the user's code has failed.
"""

import atexit
import difflib
import gc
import importlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

from msrl.cli import deploying, options
from msrl.errors import EnvError, MsrlError, RunError, UsageError, VerifyError
from msrl.runtime.outlet import silence, speak_plainly

STARTED = time.perf_counter()
COMMANDS = {"train": "msrl.cli.train", "resume": "msrl.cli.resume", "eval": "msrl.cli.evaluate",
            "replay": "msrl.cli.replay", "graph": "msrl.cli.graph", "verify": "msrl.cli.verify",
            "list": "msrl.cli.lists", "new": "msrl.cli.new", "docs": "msrl.cli.docs"}
DEPLOYED = {"train": deploying.DeploymentOptions, "graph": deploying.PlacementOptions}


def run() -> NoReturn:
    """The entry point of the process."""
    code = main()
    if any(thread.name == "msrl-env" for thread in threading.enumerate()):
        leave(code)
    sys.exit(code)


def main(args: list[str] | None = None) -> int:
    """Runs one command. Without any, it reads the process's arguments."""
    if args is not None:
        return answer(args, time.perf_counter())
    speak_plainly()
    try:
        return answer(sys.argv[1:], STARTED)
    finally:
        gc.freeze()  # the process ends: to search all that it has for garbage first would take half a second


def leave(code: int) -> NoReturn:
    """Ends the process although environments hang, in threads that were left to themselves. Until Python 3.14, one that
    comes back from C++ while the interpreter takes itself apart takes the process with it, and its exit code."""
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def answer(args: list[str], began: float) -> int:
    try:
        code = dispatch(args, began)
        sys.stdout.flush()  # while it can still be told that nobody reads it
        return code
    except MsrlError as error:
        sys.stderr.write(f"{origin(error)}{type(error).__name__}: {error}\n")
        return 1 if isinstance(error, (RunError, VerifyError)) else 2
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
    except BrokenPipeError:  # whoever read the output has left
        silence(sys.stdout)
        return 128 + signal.SIGPIPE
    except Exception as error:
        problem = platform_problem(error) or author_problem(error)
        if problem is None:
            raise
        sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
        return 2
    except SystemExit as leaving:  # tyro's way out, after --help and after bad values
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)


def platform_problem(error: Exception) -> MsrlError | None:
    """Whoever needs JAX first finds out that it cannot start."""
    platforms = sys.modules.get("msrl.engines.platforms")
    return platforms.platform_problem() if platforms and isinstance(error, (RuntimeError, AssertionError)) else None


def author_problem(error: Exception) -> MsrlError | None:
    """What a file of the user's raised where no line of the loop leads: as an agent, a buffer or a wrapper is made."""
    tracebacks = importlib.import_module("msrl.tracebacks")
    span = tracebacks.author_span(error) if tracebacks.raised_by_author(error) else None
    words = [str(error).strip(), tracebacks.author_shapes(error)]
    return UsageError(f"This line fails: {type(error).__name__}.", span=span, why="\n".join(filter(None, words))) \
        if span else None


def origin(error: MsrlError) -> str:
    """If it is of code that a line of the loop led to, the traceback of that code."""
    cause = error.__cause__
    while isinstance(cause, MsrlError):
        cause = cause.__cause__
    if cause is None or error.span is None or not isinstance(error, (RunError, EnvError)):
        return ""
    return "".join(traceback.format_exception(cause)) + "\n"


def dispatch(args: list[str], began: float) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        options.overview()
        return 0 if args else 2
    name, *rest = args
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        raise UsageError(f"There is no command {name!r}." + (f" Did you mean {near[0]}?" if near else ""),
                         why=f"The commands are {', '.join(COMMANDS)}.", instead="See: msrl --help")
    if name in DEPLOYED and not {"-h", "--help"} & set(rest):
        deploying.read(DEPLOYED[name], rest)  # what is impossible anywhere is refused before the wait for JAX
    return load(COMMANDS[name]).main(rest, began)


def load(module: str) -> Any:
    """A command by its name, as most of them wait for JAX. What is imported stays, so that to look for garbage among it
    is in vain."""
    collecting = gc.isenabled()
    gc.disable()
    # An exception that Ctrl-C raises amid an import may be caught there by others, and be lost.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler \
        and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return importlib.import_module(module)
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if collecting:
            gc.enable()


if __name__ == "__main__":
    run()
