"""The long runs (run --endurance [NAME…]): many rounds of one tree, many thaws of one image.  Not part of CI.

Each round freezes incrementally against the last image and kills, verifies nothing (the victims do), thaws and goes on;
images older than the parent are removed.  At the end the victim checks itself as in every flavour.
"""

import shutil
import time

import run as runner


def rounds(victim, tool, count, keep):
    """count generations in a row, each thawed from the image before it."""
    victim.timeout = 60 + count
    run = runner.Run(victim, tool)
    try:
        child = run.begin()
        parent = None
        for _ in range(count):
            image = run.freeze(child, parent=parent, verify=False)
            if parent:
                shutil.rmtree(parent)
            child = run.thaw(image)
            parent = image
        run.go(child)
        return "passed", ""
    except runner.Skipped as e:
        return "skipped", str(e)
    except (runner.Failed, OSError) as e:
        return "failed", f"in image {run.images}: {e}"
    finally:
        run.end(keep=keep)


def chain(victim, tool, count, keep):
    """count incremental images of a tree that runs on; all are kept, the last one is verified and thawed."""
    victim.timeout = 60 + count
    run = runner.Run(victim, tool)
    try:
        child = run.begin()
        parent = None
        for i in range(count):
            parent = run.freeze(child, kill=i == count - 1, parent=parent, verify=i == count - 1)
        run.go(run.thaw(parent))
        return "passed", ""
    except runner.Skipped as e:
        return "skipped", str(e)
    except (runner.Failed, OSError) as e:
        return "failed", f"in image {run.images}: {e}"
    finally:
        run.end(keep=keep)


def flavour(victim, tool, name, keep):
    victim.timeout *= 3
    run = runner.Run(victim, tool)
    try:
        run.flavour(name)
        return "passed", ""
    except runner.Skipped as e:
        return "skipped", str(e)
    except (runner.Failed, OSError) as e:
        return "failed", str(e)
    finally:
        run.end(keep=keep)


PLAN = [
    ("threads", "200 rounds", lambda v, t, k: rounds(v, t, 200, k)),
    ("sockets_tcp", "50 rounds", lambda v, t, k: rounds(v, t, 50, k)),
    ("real/http_server", "50 rounds", lambda v, t, k: rounds(v, t, 50, k)),
    ("real/goroutines", "50 rounds", lambda v, t, k: rounds(v, t, 50, k)),
    ("real/with_jemalloc", "50 rounds", lambda v, t, k: rounds(v, t, 50, k)),
    ("real/with_mimalloc", "50 rounds", lambda v, t, k: rounds(v, t, 50, k)),
    ("mem/allocator", "100 rounds", lambda v, t, k: rounds(v, t, 100, k)),
    ("pandas_frame", "8 thaws at once", lambda v, t, k: flavour(v, t, "eight", k)),
    ("real/goroutines", "8 thaws at once", lambda v, t, k: flavour(v, t, "eight", k)),
    ("mem/cow_family", "chain of 100", lambda v, t, k: chain(v, t, 100, k)),
    ("pandas_frame", "chain of 100", lambda v, t, k: chain(v, t, 100, k)),
    ("mem/allocator", "chain of 100", lambda v, t, k: chain(v, t, 100, k)),
    ("ipykernel_cells", "1000 rounds", lambda v, t, k: rounds(v, t, 1000, k)),
]


def main(build, tool, arguments):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    victims = {v.name: v for v in runner.find(build, [], arguments.cc)}
    for name, what, job in PLAN:
        if arguments.names and not any(n in (name, name.split("/")[-1]) for n in arguments.names):
            continue
        begin = time.monotonic()
        if name in victims:
            victim = runner.Victim(victims[name].path, build, arguments.cc)
            verdict, why = job(victim, tool, arguments.keep)
        else:
            verdict, why = "skipped", "no such victim"
        count[verdict] += 1
        print(f"{verdict:8} {name} {what} {time.monotonic() - begin:.1f}s {why}".rstrip(), flush=True)
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] else 0
