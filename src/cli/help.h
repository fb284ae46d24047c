/* Help, made from the table of verbs. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct cop_verb;

void cop_help_all(FILE *out);
void cop_help_verb(const struct cop_verb *verb);
/* `coppice help [WORD…]`: false when there is no such verb. */
bool cop_help(int argc, char **argv);
/* For words that are no verb: the verbs of a group, or the nearest one. */
void cop_help_unknown(int argc, char **argv);
