/* Runs a fuzz target over files, without libFuzzer: `replay-X FILE|FOLDER…`.  Each file in a process of its own, so that all are
 * tried; TAP and the closing line of the test harness. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define INPUT_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned number, failed;

static void run_file(const char *path)
{
        fflush(stdout);
        pid_t pid = fork();

        if (pid == 0) {
                uint8_t *data = malloc(INPUT_MAX);
                FILE *f = fopen(path, "rb");
                if (!data || !f)
                        _exit(3);
                size_t n = fread(data, 1, INPUT_MAX, f);
                fclose(f);
                uint8_t *exact = malloc(n ? n : 1); /* so that a sanitizer sees a byte too many */
                if (!exact)
                        _exit(3);
                memcpy(exact, data, n);
                free(data);
                alarm(10);
                LLVMFuzzerTestOneInput(exact, n);
                free(exact);
                exit(0);
        }
        int status = -1;
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        failed += status != 0;
        printf("%s %u - %s\n", status == 0 ? "ok" : "not ok", ++number, path);
}

static void run_path(const char *path)
{
        struct dirent **entries;
        int n = scandir(path, &entries, NULL, alphasort);

        if (n < 0) {
                run_file(path);
                return;
        }
        for (int i = 0; i < n; i++) {
                char file[4096];
                if (entries[i]->d_name[0] != '.' &&
                    snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name) < (int)sizeof(file))
                        run_file(file);
                free(entries[i]);
        }
        free(entries);
}

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                run_path(argv[i]);
        printf("%u passed, %u failed, 0 skipped\n", number - failed, failed);
        return failed || number == 0;
}
