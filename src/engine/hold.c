/* Nodes that somebody reads just now: packs, comparisons, copies.
 *
 * A node that is held stays, with the layers that it stood on when the reading began (flatten.c may give its row another one).  Who wants it
 * gone meanwhile is noted with the reader, and when that lets go it is released.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

struct cop_hold {
        struct cop_hold *next;
        struct cop_engine *engine;
        char node[COP_ID_MAX];
        json_t *layers;      /* owned array: as they are read, whatever becomes of the row */
        json_t *wanted_gone; /* owned object: ids, and whether they go alone */
};

static void hold_free(struct cop_hold *h)
{
        json_decref(h->layers);
        json_decref(h->wanted_gone);
        free(h);
}

int cop_node_hold(struct cop_engine *e, const struct cop_node_row *row, struct cop_hold **ret, struct cop_error *err)
{
        struct cop_hold *h = calloc(1, sizeof(*h));

        if (h)
                *h = (struct cop_hold){.next = e->holds,
                                       .engine = e,
                                       .layers = json_loads(row->layers, 0, NULL),
                                       .wanted_gone = json_object()};
        if (!h || !h->layers || !h->wanted_gone) {
                if (h)
                        hold_free(h);
                return cop_error_errno(err, ENOMEM, "node %s", row->id);
        }
        memcpy(h->node, row->id, sizeof(h->node));
        *ret = e->holds = h;
        return 0;
}

static bool holds(const struct cop_hold *h, const char *node)
{
        char id[COP_ID_MAX];
        json_t *layer;
        size_t i;

        if (strcmp(h->node, node) == 0)
                return true;
        json_array_foreach (h->layers, i, layer) {
                cop_layer_node(json_string_value(layer), id);
                if (strcmp(id, node) == 0)
                        return true;
        }
        return false;
}

bool cop_node_held_back(struct cop_engine *e, const char *node, bool alone)
{
        bool held = false;

        for (struct cop_hold *h = e->holds; h; h = h->next)
                if (holds(h, node)) {
                        if (!json_is_false(json_object_get(h->wanted_gone, node)))
                                json_object_set_new(h->wanted_gone, node, json_boolean(alone));
                        held = true;
                }
        return held;
}

void cop_node_let_go(struct cop_hold *h)
{
        const char *node;
        json_t *alone;

        if (!h)
                return;
        for (struct cop_hold **at = &h->engine->holds; *at; at = &(*at)->next)
                if (*at == h) {
                        *at = h->next;
                        break;
                }
        json_object_foreach (h->wanted_gone, node, alone)
                if (!h->engine->closing && json_is_true(alone))
                        cop_node_collect(h->engine, node);
                else if (!h->engine->closing)
                        cop_node_release(h->engine, node);
        hold_free(h);
}

void cop_holds_drop(struct cop_engine *e)
{
        while (e->holds)
                cop_node_let_go(e->holds);
}
