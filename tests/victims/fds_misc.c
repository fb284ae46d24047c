/* Descriptors of many kinds: eventfd, timerfd, signalfd, inotify, sealed memfd, pidfd, deleted and appended files, folders,
 * devices, locks, nested epoll with duplicates. */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "victim.h"

int main(void)
{
        uint64_t v = 77;
        char buf[4096];
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 0x1122334455667788};
        struct itimerspec its = {.it_value.tv_sec = 3600, .it_interval.tv_sec = 5}, cur;
        sigset_t set;

        int e = eventfd(0, EFD_NONBLOCK), es = eventfd(3, EFD_SEMAPHORE);
        CHECK(write(e, &v, 8) == 8);
        int t = timerfd_create(CLOCK_MONOTONIC, 0), t2 = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        CHECK(timerfd_settime(t, 0, &its, NULL) == 0);
        its = (struct itimerspec){.it_value.tv_nsec = 1000000};
        CHECK(timerfd_settime(t2, 0, &its, NULL) == 0);
        usleep(5000);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        sigprocmask(SIG_BLOCK, &set, NULL);
        int s = signalfd(-1, &set, SFD_NONBLOCK);
        kill(getpid(), SIGUSR2);
        mkdir("watched", 0755);
        int in = inotify_init1(IN_NONBLOCK), wd0 = inotify_add_watch(in, "/tmp", IN_DELETE_SELF);
        int wd = inotify_add_watch(in, "watched", IN_CREATE);
        CHECK(wd0 == 1 && inotify_rm_watch(in, wd0) == 0 && wd == 2);
        (void)!read(in, buf, sizeof(buf));
        int m = memfd_create("thing", MFD_ALLOW_SEALING);
        CHECK(ftruncate(m, 100000) == 0 && pwrite(m, "sealed", 6, 70000) == 6);
        char *mm = mmap(NULL, 100000, PROT_READ, MAP_SHARED, m, 0);
        CHECK(mm != MAP_FAILED && fcntl(m, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
        pid_t child = fork();
        if (child == 0) {
                while (!victim_gone())
                        usleep(2000);
                _exit(9);
        }
        int pfd = (int)syscall(SYS_pidfd_open, child, 0);
        char name[32];
        snprintf(name, sizeof(name), "del-%d", getpid());
        int del = open(name, O_RDWR | O_CREAT, 0640);
        CHECK(del >= 0 && write(del, "deleted content", 15) == 15 && lseek(del, 3, SEEK_SET) == 3 && unlink(name) == 0);
        int app = open("app", O_WRONLY | O_CREAT | O_APPEND, 0600), app2 = dup(app);
        CHECK(write(app, "x", 1) == 1);
        int dir = open(".", O_RDONLY | O_DIRECTORY), null = open("/dev/null", O_RDWR),
            rnd = open("/dev/urandom", O_RDONLY);
        int path = open("app", O_PATH);
        int lock = open("lock", O_RDWR | O_CREAT, 0600);
        CHECK(flock(lock, LOCK_SH) == 0);
        int ep = epoll_create1(EPOLL_CLOEXEC), ep2 = epoll_create1(0), d = dup(e);
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, d, &ev) == 0);
        close(d); /* the registration lives on through e */
        int d2 = dup(es);
        ev.data.u64 = 5;
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev) == 0);
        ev.data.u64 = 6;
        CHECK(epoll_ctl(ep2, EPOLL_CTL_ADD, ep, &ev) == 0);
        CHECK(fcntl(null, F_SETFD, FD_CLOEXEC) == 0 && dup2(es, 400) == 400);
        victim_ready();
        victim_wait();
        CHECK(read(e, &v, 8) == 8 && v == 77);
        CHECK(write(e, &v, 8) == 8);
        CHECK(read(400, &v, 8) == 8 && v == 1 && read(d2, &v, 8) == 8);
        CHECK(timerfd_gettime(t, &cur) == 0 && cur.it_value.tv_sec > 3500 && cur.it_value.tv_sec <= 3600 &&
              cur.it_interval.tv_sec == 5);
        CHECK(read(t2, &v, 8) == 8 && v == 1);
        struct epoll_event got[4];
        CHECK(epoll_wait(ep2, got, 4, 0) == 1 && got[0].data.u64 == 6);
        int n = epoll_wait(ep, got, 4, 0), seen = 0;
        CHECK(n == 2);
        for (int i = 0; i < 2; i++)
                seen |= got[i].data.u64 == 5 ? 1 : got[i].data.u64 == 0x1122334455667788 ? 2 : 0;
        CHECK(seen == 3);
        struct signalfd_siginfo si;
        CHECK(read(s, &si, sizeof(si)) == sizeof(si) && si.ssi_signo == SIGUSR2 && (pid_t)si.ssi_pid == getpid());
        int f = open("watched/new", O_CREAT | O_WRONLY, 0600);
        CHECK(f >= 0);
        unlink("watched/new");
        CHECK(read(in, buf, sizeof(buf)) > 0 && ((struct inotify_event *)(void *)buf)->wd == wd);
        CHECK(pread(m, buf, 6, 70000) == 6 && memcmp(buf, "sealed", 6) == 0 && memcmp(mm + 70000, "sealed", 6) == 0);
        CHECK(ftruncate(m, 5) < 0 && errno == EPERM && fcntl(m, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW));
        int status;
        CHECK(syscall(SYS_pidfd_send_signal, pfd, 0, NULL, 0) == 0 || errno == ESRCH);
        siginfo_t info;
        CHECK(waitid(P_PIDFD, (id_t)pfd, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 9);
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 9);
        CHECK(read(del, buf, 64) == 12 && memcmp(buf, "eted content", 12) == 0);
        struct stat st;
        CHECK(fstat(del, &st) == 0 && st.st_nlink == 0 && (st.st_mode & 0777) == 0640);
        CHECK(fcntl(app, F_GETFL) & O_APPEND && write(app2, "y", 1) == 1);
        CHECK(openat(dir, "app", O_RDONLY) >= 0 && write(null, "z", 1) == 1 && read(rnd, buf, 8) == 8);
        CHECK(read(path, buf, 1) < 0 && errno == EBADF);
        int other = open("lock", O_RDWR);
        CHECK(flock(other, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
        CHECK(fcntl(null, F_GETFD) == FD_CLOEXEC && fcntl(ep, F_GETFD) == FD_CLOEXEC && fcntl(ep2, F_GETFD) == 0);
        victim_pass();
}
