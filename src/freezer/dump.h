/* The stages of a freeze, between the stop and the commit.  Each fills its tables of the image; see freeze.c for the
 * order.  Vocabulary: collect_ reads from the kernel, dump_ writes into the image. */
#pragma once

#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/mountinfo.h"
#include "freezer/freezer.h"
#include "freezer/image.h"
#include "freezer/procfs.h"
#include "freezer/runs.h"
#include "freezer/tracee.h"

/* What one open file description is known by while the tables are made. */
struct cop_dump_file {
        uint64_t dev, ino;
        pid_t pid;     /* of a process that has it: of the tree, or the engine (descriptors in flight) */
        uint32_t proc; /* index in the tree of that process, or of the one the messages should name */
        int fd;        /* its number there */
        int own_fd;    /* owned duplicate, or -EBADF */
        uint32_t flags;
        uint32_t index;         /* in IMG_FILES */
        uint32_t less, greater; /* in the tree of its object: positions in cop_dump.files + 1, or 0 */
        bool mapping;           /* opened for a mapping, not a descriptor */
};

/* What lies behind descriptions: an inode. */
struct cop_dump_object {
        uint64_t dev, ino;
        uint32_t first;      /* root of the tree of its descriptions, as above */
        uint32_t mapping[2]; /* what is opened for its mappings, read-only and writable; as above */
        uint32_t link;       /* img_file.link, or 0 */
        bool used;
};

/* What fdinfo says of a file that is registered with an epoll or watched: its inode, and its device as the kernel writes it. */
struct cop_dump_target {
        uint64_t ino;
        uint32_t sdev;
};

struct cop_dump {
        const struct cop_freeze_request *request; /* borrowed */
        struct cop_tree tree;
        struct cop_image_writer *writer; /* owned by freeze.c */
        const struct cop_image *parent;  /* borrowed */
        struct cop_vmas *vmas;           /* owned, one per process */
        struct cop_dump_file *files;     /* owned; ascending by index */
        size_t file_count, files_allocated;
        struct cop_dump_object *objects; /* owned: hash table */
        size_t object_count, objects_allocated;
        uint32_t links;                  /* last link id given */
        struct cop_dump_target *targets; /* owned: of the records in IMG_WATCHES */
        size_t target_count;
        struct stat_id {
                uint64_t dev, ino;
        } * sources; /* owned: identity of the parent's page files, by source number in the writer */
        size_t source_count;
        struct cop_dump_move {
                struct img_extent from, to; /* places in sources; addresses say nothing */
        } * moves;                          /* owned; ascending; dump_chain.c */
        size_t move_count;
        char *buffer; /* owned: page transfer */
        uint64_t pages_written, pages_kept;
        struct cop_mounts mounts; /* owned: of the tree's first process, once they were needed */
        char *id_maps[2];         /* owned: uid_map and gid_map of the tree, as text */
        int64_t clock_offset[2];  /* ns that the tree's monotonic and boot clocks are ahead of ours */
        bool tracking; /* what the tracker says of writes refers to this parent, or to pages copied before the stop */
        int net_diag_fd;
        struct cop_view *views; /* owned; dump_mapped.c: areas of files, sorted */
        size_t view_count;
        bool accept; /* unix connections must be accepted to see what was sent (dump_accept.c) */
        struct cop_dump_waiting {
                uint32_t file;              /* the client's, or IMG_NONE */
                int fd;                     /* owned: the accepted end, kept until the tree has ended */
        } * waiting;                        /* owned */
        size_t waiting_count, waiting_room; /* all the room ever asked for */
        struct cop_dump_scan *scans;        /* owned, one per process (dump_scan.c) */
        pthread_t scanner;
        bool scanning; /* the scanner runs */
        bool guest; /* the engine is in the tree's namespaces (guest.h), with the rights of its user namespace only */
};

struct cop_dump_scan {
        struct cop_runs runs;              /* owned */
        const struct cop_tracked *tracked; /* borrowed; NULL: all runs count as written */
        int pagemap_fd;                    /* owned; of zombies negative */
        int result;                        /* 0 or -errno */
};

/* A stay in one of the tree's namespaces: name as in /proc/PID/ns, type as for setns.  A guest lives there anyway. */
struct cop_visit {
        int home_fd, type;
};
int cop_dump_enter(const struct cop_dump *d, const char *name, int type, struct cop_visit *ret, struct cop_error *err);
int cop_dump_leave(struct cop_visit *visit, struct cop_error *err);

/* dump_proc.c: processes, threads, credentials, signals, timers. */
int cop_dump_procs(struct cop_dump *d, struct cop_error *err);
/* Before anything is run in a process of a guest's tree: the filters that it cannot read are the memory watch's and nobody else's. */
int cop_dump_check_filters(struct cop_dump *d, struct cop_error *err);
/* dump_timer.c: the POSIX timers of a process, when code can be run in it.  Its signals are dumped between these two. */
#define COP_TIMERS_MAX 47
struct cop_timers {
        struct img_timer list[COP_TIMERS_MAX];
        size_t count;
};
int cop_timers_collect(struct cop_dump *d, uint32_t index, struct cop_timers *ret, struct cop_error *err);
/* Whether a pending signal is one that a timer of the list makes again when it is set as it was. */
bool cop_timers_make(const struct cop_timers *timers, const struct img_signal *signal);
int cop_dump_timers(struct cop_dump *d, uint32_t index, struct img_proc *ip, struct cop_timers *timers,
                    struct cop_error *err);
/* dump_mem.c */
int cop_collect_memory(struct cop_dump *d, struct cop_error *err);
/* Of which page file of the image an area is a mapping: the number of its source (0: this image's own), or -1. */
int cop_dump_source_of(const struct cop_dump *d, const struct cop_vma *v);
/* dump_scan.c: which pages are there, and which were written.  From begin to end nothing is run in the tree's processes. */
int cop_dump_scan_begin(struct cop_dump *d, struct cop_error *err);
int cop_dump_scan_end(struct cop_dump *d, struct cop_error *err);
void cop_dump_scan_done(struct cop_dump *d);
/* After that. */
int cop_dump_memory(struct cop_dump *d, struct cop_error *err);
/* dump_hot.c: which pages a process is going to write to.  Finds them (*ret: zeroed before, its list is to be freed) before the runs of the
 * scan are cut; adds their records when all areas have theirs.  0 or -ENOMEM. */
int cop_dump_hot_begin(const struct cop_dump *d, uint32_t proc, struct cop_runs *ret);
int cop_dump_hot_end(struct cop_dump *d, uint32_t proc, const struct cop_runs *runs);
/* dump_chain.c: when the sources are known. */
int cop_dump_chain_begin(struct cop_dump *d, struct cop_error *err);
/* An extent in an ancestor's page file: it is made shorter where it must be to lie in one place, and told where that is now. */
void cop_dump_follow(const struct cop_dump *d, struct img_extent *e);
/* At last, before the commit: few page files are to be in use. */
int cop_dump_shorten_chain(struct cop_dump *d, struct cop_error *err);
/* dump_object.c: the content of f, whose size (arg[0]), kind and numbers are known, out of fd, by its holes: its extents.  What the parent
 * image has of it (old, or NULL: it is looked for) is not written again where it is the same. */
int cop_dump_object_pages(struct cop_dump *d, int fd, const struct img_file *old, struct img_file *f,
                          struct cop_error *err);
/* dump_kept.c: what is in cop_freeze_request.kept_folders. */
int cop_dump_kept_folders(struct cop_dump *d, struct cop_error *err);
/* dump_fd.c: descriptors of all processes, and what belongs to those in flight from description `first` on. */
int cop_dump_descriptors(struct cop_dump *d, struct cop_error *err);
int cop_dump_descriptors_again(struct cop_dump *d, size_t first, struct cop_error *err);
/* The caller's name for an external file (freezer.h), or NULL. */
const char *cop_dump_external_name(const struct cop_dump *d, const struct stat *st);
/* What a thaw gives to a file that it makes anew. */
void cop_dump_attributes(const struct cop_dump *d, struct img_file *f, const struct stat *st);
/* Where a link leads (f->data): the one of that name, or with "" fd itself (O_PATH). */
int cop_dump_link_target(struct cop_dump *d, int fd, const char *name, struct img_file *f, struct cop_error *err);
/* A file to be read without a trace, as far as the engine may. */
int cop_dump_open_reader(int dir_fd, const char *path);
/* A removed folder for which no descriptor need stand; its index in IMG_FILES. */
uint32_t cop_dump_removed_folder(struct cop_dump *d, const char *path, const struct stat *st);
/* Takes what the kernel appends to the path of a removed file; false: it was not there. */
bool cop_dump_cut_deleted(char *link);
#define COP_DUMP_LINK 4352 /* room for such a path */
/* dump_map.c: a mapped file; its index in IMG_FILES. */
int cop_dump_mapped_file(struct cop_dump *d, uint32_t proc, const struct cop_vma *v, struct cop_error *err);
/* A duplicate in the engine, made at the first call and kept until the end. */
int cop_dump_duplicate(struct cop_dump *d, struct cop_dump_file *known, struct cop_error *err);
/* The file index of a descriptor of the engine itself (one that was in flight); proc is who holds the socket. */
int cop_dump_own_fd(struct cop_dump *d, uint32_t proc, int fd, struct cop_error *err);
int cop_dump_executable(struct cop_dump *d, uint32_t proc, const char *link, const struct stat *st,
                        struct cop_error *err);
/* dump_known.c.  An object, added when it is new (NULL: out of memory; valid until the next is added); the description that a
 * descriptor like this one (dev, ino, flags, pid, fd) belongs to, the one for mappings of an object, the one with this index, or
 * NULL; a new one added (NULL: out of memory); the link id of an object whose descriptions share more than their inode. */
struct cop_dump_object *cop_dump_object(struct cop_dump *d, uint64_t dev, uint64_t ino);
struct cop_dump_file *cop_dump_known(struct cop_dump *d, const struct cop_dump_file *like);
struct cop_dump_file *cop_dump_known_mapping(struct cop_dump *d, uint64_t dev, uint64_t ino, bool writable);
struct cop_dump_file *cop_dump_known_index(const struct cop_dump *d, uint32_t index);
struct cop_dump_file *cop_dump_remember(struct cop_dump *d, struct cop_dump_file f);
uint32_t cop_dump_link(struct cop_dump *d, uint64_t dev, uint64_t ino, bool *ret_new);
/* dump_name.c: the path, as the tree's first process sees it, of an inode that a line of an inotify descriptor's fdinfo names, where the
 * file system has file handles; the same by its number, looked for from the working folder of a process on;
 * of a file whose name `path` was removed while another one remains, which replaces it (of st only the numbers are known when
 * st_nlink is 0: then it may have none).  -ENOENT, -EAGAIN (too many files to
 * look at) and others: none was found. */
int cop_dump_watch_name(struct cop_dump *d, const char *line, const struct cop_dump_target *target, char *path,
                        size_t size);
int cop_dump_watch_search(struct cop_dump *d, uint32_t proc, const struct cop_dump_target *target, char *path,
                          size_t size);
/* Whether a path, as the tree's first process sees it, is that file. */
bool cop_dump_leads_to(const struct cop_dump *d, const char *path, const struct stat *st);
int cop_dump_other_name(const struct cop_dump *d, const struct stat *st, char *path, size_t size);
/* Where the file of a unix socket is (file_fd) when its address, as its process sees it, does not lead there: it was renamed, or
 * the process has gone elsewhere since.  Fails when it does. */
int cop_dump_socket_place(const struct cop_dump *d, uint32_t proc, const struct sockaddr_un *address, int file_fd,
                          char *path, size_t size);
/* dump_lock.c: the locks and leases that fdinfo (`text`) tells of; whether there is a lease among them. */
int cop_dump_locks(struct cop_dump *d, uint32_t proc, int fd, const char *text, struct cop_error *err);
bool cop_dump_has_lease(const char *text);
/* dump_process_file.c: descriptors that stand for a process: a pidfd of `pid` (as the engine sees it; not positive: it has ended),
 * a file of procfs. */
int cop_dump_pidfd(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, pid_t pid,
                   struct cop_error *err);
int cop_dump_proc_file(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, const char *path,
                       const struct stat *st, struct cop_error *err);
/* Whether it is a namespace of the tree, by what the kernel calls it. */
bool cop_dump_namespace(struct cop_dump *d, struct img_file *f, const char *link, const struct stat *st);
/* dump_mapped.c: the content of f, which has the identity of mapped areas, out of them: for who may not open it.  Process and path are
 * those of one such area. */
int cop_dump_object_mapped(struct cop_dump *d, uint32_t proc, struct img_file *f, const char *path,
                           struct cop_error *err);
/* Adds the pages of data, which are at `offset` of the object, to its extents where they are not zero. */
int cop_dump_filled_pages(struct cop_dump *d, struct img_file *f, uint64_t offset, const char *data, size_t pages,
                          struct cop_error *err);
/* dump_sysv.c: all objects; then the file index of an attached segment. */
int cop_dump_sysv(struct cop_dump *d, struct cop_error *err);
int cop_dump_sysv_area(struct cop_dump *d, uint32_t proc, const struct cop_vma *v, struct cop_error *err);
/* An id, as the engine sees it, as it is inside the tree's user namespace (UINT32_MAX: it has none). */
uint32_t cop_dump_uid(const struct cop_dump *d, uint32_t uid);
uint32_t cop_dump_gid(const struct cop_dump *d, uint32_t gid);
/* dump_queue.c: a process and its user as the tree has them, empty when the kernel tells of none; what a socket has received, through a duplicate; or the packets given. */
struct img_ref cop_dump_credentials(struct cop_dump *d, const struct ucred *who);
int cop_dump_queue(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                   struct cop_error *err);
/* Whether messages of a unix socket have senders whose pid is not known; asks for them, in the tree's pid namespace. */
bool cop_dump_senders_unknown(struct cop_dump *d, const struct img_file *f);
void cop_dump_ask_senders(struct cop_dump *d, const struct img_file *f, int fd);
void cop_dump_put_queue(struct cop_dump *d, struct img_file *f, const struct img_packet *list, size_t n);
/* dump_sock.c.  A new socket of the tree's network namespace, owned by the caller, or -errno. */
int cop_dump_new_socket(const struct cop_dump *d, int family, int type, int protocol, struct cop_error *err);
int cop_dump_socket(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_error *err);
/* What is queued in the unix sockets from cop_dump.files[first] on, those that are in flight in others included. */
int cop_dump_unix_queues(struct cop_dump *d, size_t first, struct cop_error *err);
int cop_dump_sockets_finish(struct cop_dump *d, struct cop_error *err);
/* The same for sockets that were added later, from file `first` on. */
int cop_dump_sockets_again(struct cop_dump *d, uint32_t first, struct cop_error *err);
/* dump_accept.c.  Accepts what waits at unix listeners, as the last thing in the stop: room for it in the image is made before, so that
 * only what is in flight there can make it fail.  It is put back in a tree that runs on (dump_reconnect.c); waiting_count
 * is what it has lost then. */
int cop_dump_accept(struct cop_dump *d, struct cop_error *err);
/* dump_reconnect.c.  Puts back what was accepted, as far as it can be, while the tree still stands; what remains in cop_dump.waiting is
 * lost.  Told in err, which may be NULL, is why. */
int cop_dump_reconnect(struct cop_dump *d, struct cop_error *err);
/* Room for n more accepted ends; one is kept (which does not fail). */
int cop_dump_hold_room(struct cop_dump *d, size_t n);
void cop_dump_hold(struct cop_dump *d, uint32_t file, int fd);

__attribute__((format(printf, 4, 5))) int cop_not_freezable(const struct cop_dump *d, uint32_t proc,
                                                            struct cop_error *err, const char *format, ...);
