/* Theory of operation: between two nodes
 *
 * After a node the sandbox mostly rests, or the daemon has something to do first.  What the next node, or a copy of this one, would wait
 * for is done then, in small pieces between which the loop goes on:
 *
 *      20 ms after the node   the proof that the tree has not run since (still.h), of which a fork then needs only a part
 *      from there on          room for the pages of the next node (freezer/room.c), as many as this one had and some more
 *      20 s later             the room goes, before the system writes it to disk
 */
#include "base/cleanup.h"
#include "base/log.h"
#include "freezer/freezer.h"
#include "keeper/keep.h"
#include "keeper/node.h"
#include "sandbox/wire.h"

#define REST_AFTER (20 * USEC_PER_MSEC) /* a cell that is sent at once has come by then */
#define ROOM_LIFE (20 * USEC_PER_SEC)
#define ROOM_STEP (256u << 10)

static void stop(struct cop_keep *k)
{
        k->rest_timer = cop_source_free(k->rest_timer);
        k->rest_fd = cop_close(k->rest_fd);
}

struct cop_freeze_room *cop_keep_rest_room(struct cop_keep *k)
{
        stop(k);
        return TAKE_PTR(k->room);
}

/* Whatever changes files or our own state begins with a process of the tree that runs, init or another, or is a call that is under way. */
bool cop_keep_is_still(struct cop_keep *k, int mem_fd)
{
        return mem_fd >= 0 && k->tracker && !k->calls && !k->node && k->state == COP_KEEP_RUNNING &&
               cop_tracker_still(k->tracker, mem_fd);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_keep *k = userdata;
        struct cop_error err;

        if (k->rest_fd >= 0) { /* the first time */
                (void)cop_keep_is_still(k, k->rest_fd);
                if (cop_freeze_room_new(k->rest_fd, &k->room, &err) < 0)
                        cop_log_debug("%s", err.message);
                k->rest_fd = cop_close(k->rest_fd);
        } else if (k->room && cop_freeze_room_size(k->room) >= k->room_wanted) { /* the last */
                k->room = cop_freeze_room_free(k->room);
        } else if (k->room && cop_freeze_room_grow(k->room, ROOM_STEP, &err) < 0) {
                cop_log_debug("%s", err.message);
                k->room = cop_freeze_room_free(k->room);
        }
        if (!k->room)
                stop(k);
        else
                cop_source_set_time(s,
                                    cop_freeze_room_size(k->room) < k->room_wanted ? 0 : cop_usec_add(now, ROOM_LIFE));
}

void cop_keep_rest(struct cop_keep *k, int node_fd, uint64_t pages)
{
        usec_t at = cop_usec_add(cop_now(CLOCK_MONOTONIC), REST_AFTER);

        k->room = cop_freeze_room_free(cop_keep_rest_room(k));
        k->room_wanted = cop_freeze_room_wanted(pages);
        if (cop_node_folder(node_fd, "mem", &k->rest_fd, NULL) == 0)
                (void)cop_loop_add_timer(k->loop, at, on_timer, k, &k->rest_timer, NULL);
}
