/* What coppiced, coppice-keeper and coppice-init say to each other: message types and fields on top of base/msg.h.
 *
 *      coppiced  ── keeper.sock ──►  coppice-keeper  ── control socket (fd 3 of init) ──►  coppice-init
 *
 * A request has an id > 0 chosen by the sender; exactly one COP_WIRE_REPLY with that id answers it, carrying either an error
 * (cop_msg_get_error) or the fields listed as "reply".  Events have id 0 and no answer.  Requests may be answered out of
 * order.  One client at a time talks to a keeper; a new connection replaces the old one (daemon restart), and loses no
 * event: what ended in between stays in LIST until FORGET.
 *
 * coppiced trusts the keeper's framing, not the bytes that came from the sandbox (names, output, messages of init).
 * The keeper trusts nothing that init says.
 */
#pragma once

#define COP_WIRE_VERSION 2

enum cop_wire_type {
        COP_WIRE_REPLY = 1,

        /* -- coppiced -> keeper ------------------------------------------------------------------------------------ */
        COP_WIRE_HELLO, /* VERSION, optional: another than the keeper's is refused with unsupported.
                           reply: VERSION, ID, STATE ("new", "running", "ended"), INIT_PID (host pid), REASON */
        COP_WIRE_START, /* the whole sandbox: LOWER+, UPPER, IPC, LOGS, HOSTNAME, UID_BASE, DEFAULT_UID, DEFAULT_GID, CGROUP,
                           CWD (the default folder inside), and as limits MEMORY_MAX, CPU_MILLI, PIDS_MAX (0 or absent =
                           none) and NOFILE.  reply: INIT_PID, DURATION (µs) */
        COP_WIRE_STOP, /* TIMEOUT (grace, µs): SIGTERM to all, then SIGKILL; unmounts, removes cgroup and run files.  The
                           reply comes when nothing is left; then the keeper exits */
        COP_WIRE_EXEC, /* KEY, ARGV+, ENV*, CWD, USER, FLAGS, TIMEOUT, LOG_MAX, RLIMIT_DATA; fd 0: stdin (optional, else
                           /dev/null).  reply: PID (inside) */
        COP_WIRE_SIGNAL, /* KEY or PID, SIGNAL, FLAGS (COP_EXEC_GROUP: its whole process group).  reply: empty */
        COP_WIRE_FILE,   /* see "FILE" below */
        COP_WIRE_STATS,  /* reply: MEMORY, MEMORY_PEAK, MEMORY_MAX, OOM_KILLS, CPU_USEC, PIDS */
        COP_WIRE_LIST,   /* reply: one ENTRY field per command, each a struct cop_wire_entry */
        COP_WIRE_FORGET, /* KEY: drop a finished command.  reply: empty */
        COP_WIRE_LIMITS, /* MEMORY_MAX, CPU_MILLI, PIDS_MAX, each optional: change them now.  reply: empty */
        COP_WIRE_FREEZE, /* NODE, PARENT, FLAGS: see "Nodes" below.  reply: PAUSE, DURATION, MEMORY_BYTES, FILE_BYTES, FILES,
                            PIDS (processes in the image) */

        /* -- keeper -> coppiced, events ---------------------------------------------------------------------------- */
        COP_WIRE_EVENT_EXIT, /* KEY, PID, STATUS (waitid code|signal, below), TIMED_OUT, OOM_KILLS (of the sandbox so far),
                                 MEMORY_PEAK, STDOUT_BYTES, STDERR_BYTES, LOG_SIZE: sent after all output that was in the
                                 pipes at exit is in the log */
        COP_WIRE_EVENT_LOG, /* KEY, LOG_SIZE: the log grew; coalesced, at most one per 2 ms per command */
        COP_WIRE_EVENT_EOF, /* KEY, LOG_SIZE: no process holds the output pipes any more (may come long after EXIT) */
        COP_WIRE_EVENT_ENDED, /* the sandbox is gone without STOP; everything that ran got its EVENT_EXIT before.  REASON: "oom"
                                 (init was the victim), "init_signal_N", "init_exited_N" */
        COP_WIRE_EVENT_TAKEN, /* the state for the FREEZE under way was taken and the tree is about to run on: what happens from now
                                 on is not in the node.  Not with COP_NODE_END or COP_NODE_FILES */

        /* -- keeper -> init ---------------------------------------------------------------------------------------- */
        COP_WIRE_SPAWN, /* as EXEC without LOG_MAX, TIMEOUT; fds: stdin, stdout, stderr.  reply: PID.  init makes a new
                           session, sets oom_score_adj 500, rlimits, user, groups, cwd, env; failure of execve comes back as
                           an error: exec_failed with ENOENT/EACCES/ENOTDIR (cwd) */
        COP_WIRE_KILL,  /* PID, SIGNAL, FLAGS as SIGNAL.  reply: empty */
        COP_WIRE_OPEN,  /* as FILE, passed through unchanged */

        /* -- init -> keeper, events -------------------------------------------------------------------------------- */
        COP_WIRE_CHILD, /* PID, STATUS: a spawned process ended (orphans are reaped silently) */
        COP_WIRE_READY, /* once, before anything else: VERSION */

        /* -- coppiced -> keeper, added later: the numbers above are known to inits that sleep in nodes -------------------------- */
        COP_WIRE_PREPARE, /* as START without LOWER, HOSTNAME, THAW and FLAGS: cgroup, namespaces, id maps, for a sandbox of which the layers come
                             later.  A START with the same fields goes on from there, or from the beginning when this failed; what both say
                             counts as said here.  STOP, an end of this keeper, or a START that fails takes it away.  reply: DURATION (µs) */
        COP_WIRE_STILL, /* PARENT: has nothing happened inside since that node was made of it?  reply: FLAGS, 1 = so it is proven, and a
                             FREEZE would give the same but for the time; 0 = it has, or there is no proof */
        COP_WIRE_EVENT_BOUND, /* before the reply to a START with THAW: the tree's sockets are there and take connections, which nobody inside
                             answers before the tree runs */
        COP_WIRE_NAME, /* HOSTNAME: another than the START said, for what was thawed with COP_THAW_AHEAD and has had no LIST yet.
                             reply: empty */
};

/* STATUS: (exit code << 8) for a normal end, signal number for a death by signal; as wait(2) without the core bit. */

enum cop_wire_tag {
        COP_TAG_VERSION = 1,
        COP_TAG_ID,
        COP_TAG_STATE,
        COP_TAG_REASON,
        COP_TAG_INIT_PID,
        COP_TAG_DURATION,
        COP_TAG_KEY, /* the daemon's name for a command, at most 63 bytes of [a-z0-9_]; also the stem of its log file */
        COP_TAG_PID, /* always a pid inside the sandbox's pid namespace */
        COP_TAG_ARGV,
        COP_TAG_ENV, /* "NAME=value" */
        COP_TAG_CWD,
        COP_TAG_USER, /* "user", "root", "1000", "1000:1000"; names are looked up inside; empty = the image's default */
        COP_TAG_FLAGS,
        COP_TAG_TIMEOUT, /* µs; 0 = none */
        COP_TAG_LOG_MAX, /* bytes of output kept in the log, frame headers included */
        COP_TAG_RLIMIT_DATA,
        COP_TAG_SIGNAL,
        COP_TAG_STATUS,
        COP_TAG_TIMED_OUT,
        COP_TAG_OOM_KILLS,
        COP_TAG_MEMORY,
        COP_TAG_MEMORY_PEAK,
        COP_TAG_MEMORY_MAX,
        COP_TAG_CPU_USEC,
        COP_TAG_CPU_MILLI, /* 1000 = one CPU; 0 = no limit */
        COP_TAG_PIDS,
        COP_TAG_PIDS_MAX,
        COP_TAG_NOFILE,
        COP_TAG_STDOUT_BYTES, /* written by the command, whether kept or not */
        COP_TAG_STDERR_BYTES,
        COP_TAG_LOG_SIZE,
        COP_TAG_ENTRY,
        COP_TAG_STARTED, /* µs, CLOCK_REALTIME */
        COP_TAG_ENDED,

        /* START */
        COP_TAG_LOWER = 64, /* host path of a read-only layer, topmost first, repeated */
        COP_TAG_UPPER,      /* host path of the folder that holds upper/ and work/ */
        COP_TAG_IPC,        /* host path of the folder bound to /run/coppice inside (kernel sockets) */
        COP_TAG_LOGS,       /* host path of the folder for command logs: KEY.log */
        COP_TAG_HOSTNAME,
        COP_TAG_UID_BASE, /* first host uid = gid of the sandbox's 65536 */
        COP_TAG_DEFAULT_UID,
        COP_TAG_DEFAULT_GID,
        COP_TAG_CGROUP, /* name below the coppice cgroup; the sandbox id */
        COP_TAG_THAW, /* host path of a node's folder: instead of starting an init, thaw the frozen one (see "Nodes") */

        /* FILE */
        COP_TAG_OP = 96, /* enum cop_file_op */
        COP_TAG_PATH,
        COP_TAG_PATH2,
        COP_TAG_MODE,
        COP_TAG_OFFSET,
        COP_TAG_LENGTH,
        COP_TAG_SIZE,
        COP_TAG_MTIME, /* µs, CLOCK_REALTIME */
        COP_TAG_TYPE,  /* "file", "directory", "symlink", "fifo", "socket", "device" */
        COP_TAG_UID,
        COP_TAG_GID,
        COP_TAG_TARGET, /* of a symbolic link */
        COP_TAG_SHA256, /* 64 hex digits */
        COP_TAG_NAME,
        COP_TAG_DEPTH,
        COP_TAG_COUNT,

        /* FREEZE */
        COP_TAG_NODE = 128,
        COP_TAG_PARENT,
        COP_TAG_PAUSE, /* µs */
        COP_TAG_MEMORY_BYTES,
        COP_TAG_FILE_BYTES,
        COP_TAG_FILES,
};

/* FLAGS of EXEC, SPAWN, SIGNAL */
#define COP_EXEC_GROUP (1u << 0)  /* SIGNAL: the whole process group */
#define COP_EXEC_KERNEL (1u << 1) /* a Jupyter kernel: no own timeout */
#define COP_EXEC_DETACHED (1u << 2)

/* FILE: OP, PATH, USER and by operation the fields below.  Carried out by a forked worker of init as that user, inside the
 * sandbox, with O_NONBLOCK and a time limit of 60 s without progress; only regular files are read and written, so no FIFO or
 * device hangs it.  Relative paths start at the default workdir.  fd 0 carries the data.  reply when done: TYPE, SIZE, MODE,
 * UID, GID, MTIME, PATH (absolute) and SHA256 where asked; errors: file_not_found, file_access, file_type, file_exists,
 * disk_full, range_invalid, io_error. */
enum cop_file_op {
        COP_FILE_STAT = 1, /* FLAGS SHA256, NOFOLLOW; TARGET in the reply of a link */
        COP_FILE_READ,   /* OFFSET, LENGTH (0 = to the end); fd 0: SOCK_STREAM, data then end of file.  Before the data
                              the reply comes (SIZE is the file's, LENGTH what follows), so that the caller can send
                              headers; a file that shrinks meanwhile gives fewer bytes, never padding.  FLAGS SHA256 is not
                              for READ */
        COP_FILE_WRITE,  /* MODE (0 = 0644 or the old file's), FLAGS ATOMIC|SHA256|EXCLUSIVE|PARENTS, OFFSET (without
                              ATOMIC), LENGTH: the exact number of bytes that will come, or UINT64_MAX = until end of file;
                              fd 0: SOCK_STREAM that the caller writes and shuts down.  Less than LENGTH: cancelled, nothing
                              replaced.  With an unknown length, "until end of file" means shut down and still open: a
                              caller that closed the socket altogether has given up */
        COP_FILE_LIST,   /* DEPTH (1 = only the folder); fd 0: SOCK_SEQPACKET, one message per entry with NAME (relative
                              path), TYPE, SIZE, MODE, UID, GID, MTIME, TARGET; at most COUNT entries (default 10,000), then
                              the reply has FLAGS TRUNCATED */
        COP_FILE_MKDIR,  /* MODE, FLAGS PARENTS */
        COP_FILE_MOVE,   /* PATH -> PATH2, FLAGS OVERWRITE */
        COP_FILE_REMOVE, /* FLAGS RECURSIVE */
        COP_FILE_TAR,    /* fd 0: SOCK_STREAM, a pax archive of PATH (names relative to its parent) */
        COP_FILE_UNTAR,  /* fd 0: SOCK_STREAM, extracted below PATH; links that lead out, absolute and .. names, device
                              nodes are refused */
};

#define COP_FILE_SHA256 (1u << 0)
#define COP_FILE_NOFOLLOW (1u << 1)
#define COP_FILE_ATOMIC (1u << 2)
#define COP_FILE_EXCLUSIVE (1u << 3)
#define COP_FILE_PARENTS (1u << 4)
#define COP_FILE_OVERWRITE (1u << 5)
#define COP_FILE_RECURSIVE (1u << 6)
#define COP_FILE_TRUNCATED (1u << 7)

/* ENTRY of LIST, host byte order. */
struct cop_wire_entry {
        char key[64]; /* NUL-terminated */
        unsigned long long pid;
        unsigned flags;  /* COP_ENTRY_* */
        unsigned status; /* as STATUS; with COP_ENTRY_EXITED */
        unsigned long long stdout_bytes, stderr_bytes, log_size;
        unsigned long long started, ended; /* µs, CLOCK_REALTIME; ended 0 while it runs */
};
#define COP_ENTRY_EXITED (1u << 0) /* the main process ended */
#define COP_ENTRY_EOF (1u << 1)    /* no process holds its output pipes any more */
#define COP_ENTRY_TIMED_OUT (1u << 2)

/* Nodes (saved states).  A node's folder, made empty by the daemon and never shown before its row is committed:
 *      layer/    the sandbox's files since its lower layers: what was the upper directory at that instant
 *      mem/      the freezer's image (absent in a node of files only)
 *      ipc/      copy of the folder that is /run/coppice inside, without its sockets
 *      keep      the keeper's own state: its commands (key, pid, status, counts), as messages of base/msg.h
 *
 * FREEZE writes all of it into NODE and syncs it before it answers (but see COP_NODE_LAZY); `keep` comes last.  Files are captured
 * while the tree stands still, so memory and files are of one instant: a first pass runs before the stop, the pass during it takes
 * only what has changed since.  A file that is unchanged since PARENT becomes a hard link into PARENT's layer (both are
 * immutable), else it is cloned (FICLONE) or copied.  PARENT: folder of the node that this sandbox was thawed from or last frozen to;
 * also the freezer's parent image.  A client that is replaced before the stop gets an error (cancelled), and no node is made.
 *
 * FLAGS of FREEZE:
 *      COP_NODE_END    suspend: the tree ends and the upper directory itself is moved to layer/, then the keeper ends as after
 *                      STOP.  On failure everything runs on, or, when it came after the tree's end, the sandbox ends
 *                      with its files in place
 *      COP_NODE_FILES  no mem/
 *      COP_NODE_LAZY   not with END: the answer does not wait for the disk; a file `synced` in the node says later that all of it is
 *                      there.  Without it a node is good until the machine stops: after a boot the daemon must drop it
 *
 * START with THAW: lower layers, upper, ipc and logs are those of the new sandbox (NODE/layer is among LOWER; the daemon has
 * copied nothing, and with a PREPARE before it the node need not have been there yet); the keeper fills IPC from the node's ipc/, makes the namespaces, thaws the tree into them with the same pids
 * inside, binds init's control socket and the pipes of running commands anew, and goes on with the commands in `keep`.
 * FLAGS: COP_THAW_FORK: it is another sandbox than the one that was frozen (hostname, fresh wipe-on-fork memory; logs of commands
 * start empty).  COP_THAW_AHEAD: nobody uses it yet; until its LIST it stands still, and goes, like what was prepared, when no
 * client comes back.
 * Errors: image_mismatch, image_damaged, start_failed: then nothing is left and the daemon may boot cold. */
#define COP_NODE_END (1u << 0)
#define COP_NODE_FILES (1u << 1)
#define COP_NODE_LAZY (1u << 3)
#define COP_THAW_FORK (1u << 2)
#define COP_THAW_AHEAD (1u << 4)

/* Log of a command, KEY.log: frames written by the keeper in the order in which it read the pipes.  Host byte order. */
#define COP_LOG_MAGIC 0x31474c43u /* "CLG1", first 4 bytes of the file, then 4 zero bytes */
struct cop_log_frame {
        unsigned char
                stream; /* 1 stdout, 2 stderr, 3 truncation mark: length is 8 and the bytes are the u64 number of bytes
                                 not kept (the mark is rewritten in place while more are dropped) */
        unsigned char zero[3];
        unsigned length;         /* of the bytes that follow, at most 65536 */
        unsigned long long time; /* µs, CLOCK_REALTIME */
};

/* Inside the sandbox: where things are. */
#define COP_INSIDE_IPC "/run/coppice" /* one folder per kernel generation */
#define COP_INIT_CONTROL_FD 3
