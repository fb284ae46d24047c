/* Sizes and names of the sections of an image: the one table that writer, reader and printer share. */
#pragma once

#include "freezer/image.h"

static inline size_t cop_image_record_size(unsigned kind)
{
        switch (kind) {
        case IMG_TREE:
                return sizeof(struct img_tree);
        case IMG_SOURCES:
                return sizeof(struct img_source);
        case IMG_PROCS:
                return sizeof(struct img_proc);
        case IMG_THREADS:
                return sizeof(struct img_thread);
        case IMG_VMAS:
                return sizeof(struct img_vma);
        case IMG_EXTENTS:
                return sizeof(struct img_extent);
        case IMG_FILES:
                return sizeof(struct img_file);
        case IMG_FDS:
                return sizeof(struct img_fd);
        case IMG_WATCHES:
                return sizeof(struct img_watch);
        case IMG_SIGNALS:
                return sizeof(struct img_signal);
        case IMG_TIMERS:
                return sizeof(struct img_timer);
        case IMG_LOCKS:
                return sizeof(struct img_lock);
        case IMG_PACKETS:
                return sizeof(struct img_packet);
        case IMG_GUARDS:
                return sizeof(struct img_guard);
        case IMG_FILTERS:
                return sizeof(struct img_filter);
        case IMG_HOT:
                return sizeof(struct img_hot);
        default:
                return 1;
        }
}

static inline const char *cop_image_section_name(unsigned kind)
{
        static const char *const names[IMG_SECTION_MAX] = {
                "?",       "heap",   "tree",        "sources", "processes", "threads", "memory areas",
                "extents", "files",  "descriptors", "watches", "signals",   "timers",  "locks",
                "packets", "guards", "filters",     "hot"};

        return kind < IMG_SECTION_MAX ? names[kind] : "?";
}
