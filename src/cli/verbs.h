/* Every verb of the command line, each defined in verb-NAME.c; main.c has the list. */
#pragma once

#include "cli.h"

extern const struct cop_verb cop_verb_new, cop_verb_run, cop_verb_exec, cop_verb_cp, cop_verb_ls, cop_verb_info,
        cop_verb_logs, cop_verb_rm;
extern const struct cop_verb cop_verb_suspend, cop_verb_resume, cop_verb_snapshot, cop_verb_snapshot_ls,
        cop_verb_snapshot_rm, cop_verb_fork, cop_verb_log, cop_verb_undo, cop_verb_redo, cop_verb_goto, cop_verb_keep,
        cop_verb_export, cop_verb_import, cop_verb_gc, cop_verb_pack, cop_verb_unpack, cop_verb_diff, cop_verb_take;
extern const struct cop_verb cop_verb_context_ls, cop_verb_context_new, cop_verb_context_restart,
        cop_verb_context_interrupt, cop_verb_context_rm, cop_verb_interrupt;
extern const struct cop_verb cop_verb_image_build, cop_verb_image_import, cop_verb_image_ls, cop_verb_image_show,
        cop_verb_image_rm, cop_verb_image_warm;
extern const struct cop_verb cop_verb_token_new, cop_verb_token_ls, cop_verb_token_rm;
extern const struct cop_verb cop_verb_doctor, cop_verb_serve, cop_verb_version;
