# Python's multiprocessing in all its ways to start a process: pools that live on, queues, locks, a manager, shared memory with a name.
# victim: timeout=60
import concurrent.futures
import multiprocessing
import os
import time
from multiprocessing import shared_memory


def square(x):
    return x * x


def work(queue, replies, ended, lock, total):
    while (i := queue.get()) is not None:
        with lock:
            total.value += i
        replies.put(i * 2)
    ended.set()


def main():
    pools = {kind: concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(kind))
             for kind in ("fork", "spawn", "forkserver")}
    for pool in pools.values():
        assert list(pool.map(square, range(10)))[9] == 81
    spawn = multiprocessing.get_context("spawn")  # its locks have names in /dev/shm, by which new processes find them
    queue, replies, ended, lock, total = spawn.Queue(), spawn.Queue(), spawn.Event(), spawn.Lock(), spawn.Value("i", 0)
    workers = [spawn.Process(target=work, args=(queue, replies, ended, lock, total)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for i in range(100):
        queue.put(i)
    assert sorted(replies.get(timeout=20) for _ in range(100)) == [i * 2 for i in range(100)]
    memory = shared_memory.SharedMemory(create=True, size=100000)
    memory.buf[:5] = b"hello"
    manager = multiprocessing.Manager()
    shared = manager.dict(a=1)
    later = multiprocessing.Pool(2)
    squares = later.map_async(square, range(1000))
    queue.put(7)
    print("READY", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.002)
    assert replies.get(timeout=20) == 14
    assert squares.get(20)[999] == 998001 and later.apply(square, (5,)) == 25
    shared["b"] = 2
    assert dict(shared) == {"a": 1, "b": 2}
    again = shared_memory.SharedMemory(memory.name)
    again.buf[0] = ord("j")
    assert bytes(memory.buf[:5]) == b"jello"
    again.close()
    for pool in pools.values():
        assert list(pool.map(square, range(10)))[9] == 81
    late = spawn.Process(target=work, args=(queue, replies, ended, lock, total))
    late.start()
    for _ in [*workers, late]:
        queue.put(None)
    for worker in [*workers, late]:
        worker.join(20)
        assert worker.exitcode == 0
    assert ended.is_set() and total.value == sum(range(100)) + 7
    memory.close()
    memory.unlink()
    print("PASS", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
