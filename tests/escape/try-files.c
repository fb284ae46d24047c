/* Files: the host's, the kernel's, devices. */
#include "try.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

/* arg: the path of a secret on the host. */
static enum outcome host_file(const char *arg)
{
        static const char *const ways[] = {"",
                                           "/..",
                                           "/../../../../../..",
                                           "/proc/1/root",
                                           "/proc/1/cwd",
                                           "/proc/self/root/..",
                                           "/proc/self/cwd/../../../..",
                                           "/run/coppice/../../../../../..",
                                           "/dev/shm/../../../.."};
        enum outcome o = HELD;
        char path[512];

        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                snprintf(path, sizeof(path), "%s%s", ways[i], arg);
                o = worst(o, must_not_read(path));
        }
        return o;
}

/* chroot into a subfolder while the current directory stays above it, then climb. */
static enum outcome chroot_climb(const char *arg)
{
        char up[256] = "", *end = up;

        mkdir("/tmp/jail", 0755);
        if (chroot("/tmp/jail") < 0) {
                printf("chroot: %s\n", strerror(errno));
                return am_root() ? ESCAPED /* it is promised to work */ : HELD;
        }
        for (int i = 0; i < 40; i++) {
                if (chdir("..") < 0)
                        break;
                end += sprintf(end, "../");
        }
        if (chroot(".") < 0)
                return judge("chroot .", -1);
        return worst(must_not_read(arg), must_not_read("/root/.coppice-escape-marker-of-host"));
}

/* Everything mounted must be of a kind that belongs inside. */
static enum outcome mount_table(const char *arg)
{
        FILE *f = fopen("/proc/self/mountinfo", "re");
        enum outcome o = HELD;
        char line[2048], point[512], type[64];

        while (f && fgets(line, sizeof(line), f)) {
                char *dash = strstr(line, " - ");
                if (!dash || sscanf(line, "%*d %*d %*s %*s %511s", point) != 1 || sscanf(dash + 3, "%63s", type) != 1)
                        continue;
                bool fine = strcmp(type, "overlay") == 0 || strcmp(type, "tmpfs") == 0 || strcmp(type, "proc") == 0 ||
                            strcmp(type, "devpts") == 0 || strcmp(point, "/run/coppice") == 0 ||
                            strcmp(point, "/sys/devices/system/cpu") == 0 ||
                            (strcmp(type, "devtmpfs") == 0 && strncmp(point, "/dev/", 5) == 0) ||
                            (strcmp(type, "cgroup2") == 0 && strstr(line, " ro,"));
                if (!fine) {
                        printf("mounted: %s", line);
                        o = ESCAPED;
                }
        }
        if (f)
                fclose(f);
        return o;
}

static enum outcome inherited_files(const char *arg)
{
        DIR *dir = opendir("/proc/self/fd");
        struct dirent *entry;
        enum outcome o = HELD;
        char target[512], path[300];

        while (dir && (entry = readdir(dir))) {
                if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(dir))
                        continue;
                snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
                ssize_t n = readlink(path, target, sizeof(target) - 1);
                target[n > 0 ? n : 0] = '\0';
                if (atoi(entry->d_name) > 2 || (strncmp(target, "pipe:", 5) != 0 && strcmp(target, "/dev/null") != 0)) {
                        printf("%s -> %s\n", entry->d_name, target);
                        o = ESCAPED;
                }
        }
        if (dir)
                closedir(dir);
        return o;
}

static enum outcome kernel_files(const char *arg)
{
        static const char *const paths[] = {"/proc/kcore",
                                            "/proc/kallsyms",
                                            "/proc/keys",
                                            "/proc/key-users",
                                            "/proc/kmsg",
                                            "/proc/timer_list",
                                            "/proc/iomem",
                                            "/proc/ioports",
                                            "/proc/slabinfo",
                                            "/proc/kpageflags",
                                            "/proc/modules",
                                            "/proc/interrupts",
                                            "/proc/sched_debug",
                                            "/proc/vmallocinfo",
                                            "/proc/mtrr",
                                            "/sys/kernel/debug/sched/debug",
                                            "/sys/firmware/dmi/tables/DMI",
                                            "/sys/class/dmi/id/product_uuid",
                                            "/sys/kernel/security/lsm",
                                            "/dev/mem",
                                            "/dev/kmem",
                                            "/dev/port",
                                            "/dev/kmsg",
                                            "/dev/vda",
                                            "/dev/sda",
                                            "/dev/kvm",
                                            "/dev/fuse",
                                            "/dev/net/tun",
                                            "/dev/loop0",
                                            "/dev/loop-control",
                                            "/dev/mapper/control",
                                            "/dev/vsock"};
        enum outcome o = HELD;

        for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
                o = worst(o, must_not_read(paths[i]));
        return worst(o, judge("/dev/kvm", open("/dev/kvm", O_RDWR)));
}

static enum outcome kernel_settings(const char *arg)
{
        static const struct {
                const char *path, *text;
        } writes[] = {
                {"/proc/sys/kernel/core_pattern", "|/tmp/x"},
                {"/proc/sys/kernel/modprobe", "/tmp/x"},
                {"/proc/sys/kernel/hostname", "escaped"},
                {"/proc/sys/kernel/domainname", "escaped"},
                {"/proc/sys/kernel/sysrq", "1"},
                {"/proc/sys/kernel/ns_last_pid", "100"},
                {"/proc/sys/kernel/shmmax", "1"},
                {"/proc/sys/vm/drop_caches", "1"},
                {"/proc/sys/vm/overcommit_memory", "1"},
                {"/proc/sys/fs/file-max", "100"},
                {"/proc/sys/net/ipv4/ip_forward", "1"},
                {"/proc/sys/net/ipv4/ping_group_range", "0 100"},
                {"/proc/sys/user/max_user_namespaces", "1"},
                {"/proc/sys/fs/binfmt_misc/register", ":x:M::x::/tmp/x:"},
                {"/proc/sysrq-trigger", "h"},
                {"/proc/irq/default_smp_affinity", "1"},
                {"/proc/bus/pci/00/00.0", "x"},
                {"/proc/acpi/wakeup", "x"},
                {"/sys/devices/system/cpu/cpu1/online", "0"},
                {"/sys/kernel/uevent_helper", "/tmp/x"},
                {"/sys/power/state", "mem"},
        };
        enum outcome o = HELD;

        for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++)
                o = worst(o, must_not_write(writes[i].path, writes[i].text));
        return o;
}

static enum outcome cgroups(const char *arg)
{
        static const char *const files[] = {"/sys/fs/cgroup/cgroup.procs",
                                            "/sys/fs/cgroup/memory.max",
                                            "/sys/fs/cgroup/pids.max",
                                            "/sys/fs/cgroup/cpu.max",
                                            "/sys/fs/cgroup/cgroup.subtree_control",
                                            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                            "/sys/fs/cgroup/memory/release_agent",
                                            "/sys/fs/cgroup/unified/cgroup.procs",
                                            "/sys/fs/cgroup/pids/cgroup.procs"};
        enum outcome o = judge("mkdir /sys/fs/cgroup/x", mkdir("/sys/fs/cgroup/x", 0755));

        o = worst(o, judge("mkdir /sys/x", mkdir("/sys/x", 0755)));
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
                o = worst(o, must_not_write(files[i], "0"));
        return o;
}

static enum outcome device_nodes(const char *arg)
{
        static const char *const folders[] = {"/tmp", "/dev", "/run", "/dev/shm", "/run/coppice", "/workspace"};
        static const struct {
                const char *name;
                mode_t type;
                unsigned major, minor;
        } devices[] = {{"mem", S_IFCHR, 1, 1},  {"kmsg", S_IFCHR, 1, 11},  {"disk", S_IFBLK, 254, 0},
                       {"loop", S_IFBLK, 7, 0}, {"kvm", S_IFCHR, 10, 232}, {"null", S_IFCHR, 1, 3}};
        enum outcome o = HELD;
        char path[128];

        for (size_t f = 0; f < sizeof(folders) / sizeof(folders[0]); f++)
                for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++) {
                        snprintf(path, sizeof(path), "%s/escape-%s", folders[f], devices[d].name);
                        int r = mknod(path, devices[d].type | 0666, makedev(devices[d].major, devices[d].minor));
                        o = worst(o, judge(path, r < 0 ? -1 : open(path, O_RDWR)));
                        if (r == 0)
                                unlink(path);
                }
        return o;
}

/* The device nodes are the host's own inodes: their attributes must not be changeable. */
static enum outcome device_attributes(const char *arg)
{
        enum outcome o = judge("chmod /dev/null", chmod("/dev/null", 0600));

        o = worst(o, judge("chown /dev/null", chown("/dev/null", 0, 0)));
        o = worst(o, judge("xattr on /dev/null", setxattr("/dev/null", "trusted.x", "x", 1, 0)));
        o = worst(o, judge("security xattr on /dev/zero", setxattr("/dev/zero", "security.x", "x", 1, 0)));
        o = worst(o,
                  judge("utimes /dev/zero", utimensat(AT_FDCWD, "/dev/zero", (struct timespec[2]){{1, 0}, {1, 0}}, 0)));
        o = worst(o, judge("unlink /dev/null", unlink("/dev/null")));
        return worst(o, judge("rename /dev/null", rename("/dev/null", "/dev/x")));
}

/* Overlayfs keeps its own state in user.overlay.*: a sandbox that could set it would redirect a folder into another layer. */
static enum outcome overlay_attributes(const char *arg)
{
        enum outcome o = HELD;
        char value[64];

        mkdir("/workspace/redirected", 0755);
        if (setxattr("/workspace/redirected", "trusted.overlay.redirect", "/etc", 4, 0) == 0)
                o = judge("trusted.overlay.redirect", 0);
        int r = setxattr("/workspace/redirected", "user.overlay.redirect", "/root", 5, 0);
        printf("user.overlay.redirect: %s (the runner looks at the layer)\n", r == 0 ? "accepted" : strerror(errno));
        r = setxattr("/workspace/redirected", "user.overlay.opaque", "y", 1, 0);
        printf("user.overlay.opaque: %s\n", r == 0 ? "accepted" : strerror(errno));
        ssize_t n = getxattr("/workspace", "user.overlay.origin", value, sizeof(value));
        if (n > 0)
                o = judge("reading overlay's own attributes", n);
        return o;
}

static enum outcome init_program(const char *arg)
{
        enum outcome o = judge("/proc/1/exe for writing", open("/proc/1/exe", O_RDWR));

        o = worst(o, judge("/proc/1/exe truncated", truncate("/proc/1/exe", 0)));
        char target[512];
        ssize_t n = readlink("/proc/1/exe", target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        printf("/proc/1/exe -> %s\n", target);
        return n > 0 && strchr(target + 1, '/') ? ESCAPED : o; /* a path of the host */
}

const struct attempt file_attempts[] = {
        {"host_file", host_file},
        {"chroot_climb", chroot_climb},
        {"mount_table", mount_table},
        {"inherited_files", inherited_files},
        {"kernel_files", kernel_files},
        {"kernel_settings", kernel_settings},
        {"cgroups", cgroups},
        {"device_nodes", device_nodes},
        {"device_attributes", device_attributes},
        {"overlay_attributes", overlay_attributes},
        {"init_program", init_program},
        {0},
};
