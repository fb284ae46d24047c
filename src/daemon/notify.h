/* The service manager's notification protocol (man 3 sd_notify), in as much as we need of it. */
#pragma once

/* Sends the lines to $NOTIFY_SOCKET; does nothing when it is not set. */
void cop_notify(const char *lines);
