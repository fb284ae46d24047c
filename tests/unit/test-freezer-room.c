/* Images whose page file was made ahead (room.c). */
#include "lib/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/freezer.h"
#include "freezer/image.h"

#define STEP (256u << 10)

static struct cop_freeze_room *make_room(int dir_fd, unsigned steps)
{
        struct cop_freeze_room *room = NULL;
        struct cop_error err;

        ASSERT_OK(cop_freeze_room_new(dir_fd, &room, &err), &err);
        for (unsigned i = 0; i < steps; i++)
                ASSERT_OK(cop_freeze_room_grow(room, STEP, &err), &err);
        ASSERT_EQ(cop_freeze_room_size(room), (uint64_t)steps * STEP);
        return room;
}

static struct cop_image_writer *begin_image(int dir_fd, struct cop_freeze_room *room)
{
        struct cop_image_writer *w = NULL;
        struct cop_error err;

        ASSERT_OK(cop_image_create(dir_fd, NULL, -EBADF, room, &w, &err), &err);
        cop_freeze_room_free(room);
        return w;
}

static uint64_t add_pages(struct cop_image_writer *w, char fill, unsigned pages)
{
        static char data[64 * IMG_PAGE];
        struct cop_error err;
        uint64_t first = 0, at;

        memset(data, fill, sizeof(data));
        for (unsigned i = 0; i < pages; i += 64) {
                size_t n = (size_t)MIN_OF(pages - i, 64u) * IMG_PAGE;
                ASSERT_OK(cop_image_write_pages(w, data, n, &at, &err), &err);
                first = i == 0 ? at : first;
        }
        return first;
}

static uint64_t add_aligned(struct cop_image_writer *w, char fill, uint64_t size)
{
        char page[IMG_PAGE];
        struct cop_error err;
        uint64_t at;

        memset(page, fill, sizeof(page));
        ASSERT_OK(cop_image_write_aligned(w, 0, size, page, sizeof(page), &at, &err), &err);
        return at;
}

static int end_image(struct cop_image_writer *w, int dir_fd)
{
        char name[IMG_PAGES_NAME_MAX];
        struct cop_error err;

        ASSERT_OK(cop_image_commit(w, false, NULL, &err), &err);
        cop_image_pages_name(cop_image_writer_id(w), name);
        cop_image_writer_free(w);
        return openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
}

static int open_folder(void)
{
        return open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static off_t size_of(int fd)
{
        struct stat st = {0};

        ASSERT_EQ(fstat(fd, &st), 0);
        return st.st_size;
}

static void expect(int fd, off_t at, char fill)
{
        char page[IMG_PAGE];

        ASSERT_EQ(pread(fd, page, sizeof(page), at), (ssize_t)sizeof(page));
        for (size_t i = 0; i < sizeof(page); i++)
                ASSERT_EQ(page[i], fill);
}

static unsigned count_files(int dir_fd)
{
        _cleanup_closedir_ DIR *dir = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        unsigned n = 0;

        for (struct dirent *entry; (entry = readdir(dir));)
                n += entry->d_name[0] != '.';
        return n;
}

/* An image of so many pages, made in room of so many steps. */
static void expect_image(unsigned steps, unsigned pages, char fill)
{
        _cleanup_close_ int dir_fd = open_folder();
        struct cop_image_writer *w = begin_image(dir_fd, make_room(dir_fd, steps));

        add_pages(w, fill, pages);
        _cleanup_close_ int fd = end_image(w, dir_fd);
        ASSERT_EQ(size_of(fd), pages * IMG_PAGE);
        for (unsigned i = 0; i < pages; i++)
                expect(fd, (off_t)i * IMG_PAGE, fill);
}

TEST(what_is_not_needed_is_cut_off)
{
        expect_image(4, 3, 'a');
}

TEST(what_does_not_fit_comes_after_it)
{
        expect_image(1, 200, 'b');
}

TEST(a_hole_stays_one)
{
        _cleanup_close_ int dir_fd = open_folder();
        struct cop_image_writer *w = begin_image(dir_fd, make_room(dir_fd, 4));

        add_pages(w, 'c', 1);
        ASSERT_EQ(add_aligned(w, 'd', STEP), STEP);
        ASSERT_EQ(add_aligned(w, 'e', 8 * STEP), 8 * STEP); /* over the end of what was made */
        _cleanup_close_ int fd = end_image(w, dir_fd);
        expect(fd, 0, 'c');
        expect(fd, IMG_PAGE, 0);
        expect(fd, STEP, 'd');
        expect(fd, STEP + IMG_PAGE, 0);
        expect(fd, 8 * STEP, 'e');
        ASSERT_EQ(size_of(fd), 8 * STEP + IMG_PAGE);
        ASSERT_EQ(lseek(fd, IMG_PAGE, SEEK_DATA), STEP);
        ASSERT_EQ(lseek(fd, STEP + IMG_PAGE, SEEK_DATA), 8 * STEP);
}

TEST(nothing_is_left_of_what_is_not_kept)
{
        _cleanup_close_ int dir_fd = open_folder();

        cop_freeze_room_free(make_room(dir_fd, 1));
        ASSERT_EQ(count_files(dir_fd), 0u);
        struct cop_image_writer *w = begin_image(dir_fd, make_room(dir_fd, 1));
        ASSERT_EQ(count_files(dir_fd), 1u);
        cop_image_writer_free(w);
        ASSERT_EQ(count_files(dir_fd), 0u);
}

TEST(room_on_another_file_system_is_no_fault)
{
        _cleanup_close_ int dir_fd = open_folder();
        struct cop_freeze_room *room = make_room(dir_fd, 1);

        cop_close(room->fd);
        room->fd = memfd_create("elsewhere", MFD_CLOEXEC);
        struct cop_image_writer *w = begin_image(dir_fd, room);
        add_pages(w, 'f', 2);
        _cleanup_close_ int fd = end_image(w, dir_fd);
        ASSERT_EQ(size_of(fd), 2 * IMG_PAGE);
        expect(fd, IMG_PAGE, 'f');
}
