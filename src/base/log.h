/* Log lines on stderr: "2026-11-29T15:03:13.123456Z LEVEL component: message".  Control characters in the message are
 * escaped, so that foreign bytes cannot forge lines.  Below layer 3 nothing logs above debug (style.md). */
#pragma once

enum cop_log_level {
        COP_LOG_ERROR,
        COP_LOG_WARNING,
        COP_LOG_INFO,
        COP_LOG_DEBUG,
};

/* Component name for all later lines (a string literal); level from $COPPICE_LOG (error|warning|info|debug), default
 * info. */
void cop_log_init(const char *component);
enum cop_log_level cop_log_max_level(void);

void cop_log(enum cop_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define cop_log_debug(...)                                   \
        do {                                                 \
                if (cop_log_max_level() >= COP_LOG_DEBUG)    \
                        cop_log(COP_LOG_DEBUG, __VA_ARGS__); \
        } while (0)
#define cop_log_info(...) cop_log(COP_LOG_INFO, __VA_ARGS__)
#define cop_log_warning(...) cop_log(COP_LOG_WARNING, __VA_ARGS__)
#define cop_log_error(...) cop_log(COP_LOG_ERROR, __VA_ARGS__)
