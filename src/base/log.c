#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static enum cop_log_level max_level = COP_LOG_INFO;
static const char *component_name = "coppice";

void cop_log_init(const char *component)
{
        const char *wanted = getenv("COPPICE_LOG");

        component_name = component;
        for (int i = 0; wanted && i <= COP_LOG_DEBUG; i++)
                if (strcmp(wanted, level_names[i]) == 0)
                        max_level = (enum cop_log_level)i;
}

enum cop_log_level cop_log_max_level(void)
{
        return max_level;
}

void cop_log(enum cop_log_level level, const char *format, ...)
{
        char stamp[COP_RFC3339_MAX], line[2048];
        va_list ap;

        if (level > max_level)
                return;
        int n = snprintf(line, sizeof(line), "%s %s %s: ", cop_rfc3339(cop_now(CLOCK_REALTIME), stamp),
                         level_names[level], component_name);
        va_start(ap, format);
        int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, ap);
        va_end(ap);
        size_t len = strlen(line);
        (void)m;
        for (size_t i = (size_t)n; i < len; i++)
                if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
                        line[i] = '?';
        line[len++] = '\n';
        if (write(STDERR_FILENO, line, len) < 0)
                return; /* nowhere left to complain */
}
