# make -j2 of a C project, frozen in the middle (jobserver pipes, compilers under way): the program is built and runs.
# victim: needs=make,cc
# victim: timeout=60
# What a source that runs on does to the files is not undone for the copy, so no run-on.
# victim: flavours=unfrozen,kill,twice,tracked
rm -rf src && mkdir src && cd src || exit 1
for i in $(seq 1 8); do
        {
                echo "#include <stdio.h>"
                for k in $(seq 1 60); do echo "int f${i}_$k(int x) { char b[64]; return snprintf(b, sizeof(b), \"%d\", x + $k) + $i; }"; done
        } >"m$i.c"
        names="$names m$i.o"
done
{
        for i in $(seq 1 8); do echo "int f${i}_7(int);"; done
        echo "int main(void) { int s = 0;"
        for i in $(seq 1 8); do echo "s += f${i}_7(1000);"; done
        echo "return s == 8 * 4 + 36 ? 0 : 1; }"
} >main.c
printf 'all: prog\n%%.o: %%.c\n\t@cc -O2 -c -o $@ $<\nprog: main.o%s\n\t@cc -o $@ $^\n' "$names" >Makefile
make -s -j2 &
while [ "$(ls ./*.o 2>/dev/null | wc -l)" -lt 3 ]; do sleep 0.01; done
echo READY
wait $! || { echo "FAIL: make failed"; exit 1; }
./prog || { echo "FAIL: the program is wrong"; exit 1; }
while [ ! -e ../go ]; do sleep 0.01; done
echo PASS
