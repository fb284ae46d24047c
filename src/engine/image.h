/* Images: image.c (operations), image-job.c (the child that makes one). */
#pragma once

#include "engine/sandbox.h"

struct cop_image_job;

struct cop_image_job_params {
        bool import;
        const char *source;    /* import: as given */
        const char *recipe;    /* build: folder */
        const char *mirror;    /* build: may be NULL */
        const char *name;      /* of the image */
        bool unless_unchanged; /* build: an image of the name that has the same recipe id will do */
};

/* Starts the job and answers `to` when it ended. */
void cop_image_job_start(struct cop_engine *e, const struct cop_image_job_params *p, struct cop_op_to to,
                         struct cop_op **ret_op);
/* Registers the finished folder: reads image.json, inserts the row, gives the Image object. */
int cop_image_register(struct cop_engine *e, const char *id, const char *name, const char *dir, json_t **ret_view,
                       struct cop_error *err);
json_t *cop_image_view(struct cop_engine *e, const struct cop_image_row *row, bool packages);
/* The old image of a name goes once nobody uses it. */
bool cop_image_job_running(struct cop_engine *e, const char *name);
