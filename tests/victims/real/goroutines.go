// Goroutines that compute, allocate and talk while the garbage collector is busy; timers, a TCP server on loopback.
// victim: timeout=60
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

type node struct {
	left, right *node
	data        [40]byte
	sum         byte
}

func build(depth int, seed byte) *node {
	n := &node{}
	for i := range n.data {
		if n.data[i] != 0 {
			fail("fresh memory is not zero")
		}
		n.data[i] = seed + byte(i)
		n.sum += n.data[i]
	}
	if depth > 0 {
		n.left, n.right = build(depth-1, seed*3+1), build(depth-1, seed*5+2)
	}
	return n
}

func (n *node) check() int {
	if n == nil {
		return 0
	}
	var sum byte
	for _, b := range n.data {
		sum += b
	}
	if sum != n.sum {
		fail("a node has changed")
	}
	return 1 + n.left.check() + n.right.check()
}

func fail(what string) {
	fmt.Println("FAIL:", what)
	os.Exit(1)
}

func main() {
	debug.SetGCPercent(20)
	kept := build(13, 7)
	var stop, rounds, ticks atomic.Int64
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func(seed byte) {
			defer group.Done()
			for stop.Load() == 0 {
				if build(8, seed).check() != 511 {
					fail("a tree has lost nodes")
				}
				big := make([]byte, 1<<20)
				for k := 0; k < len(big); k += 1024 {
					if big[k] != 0 {
						fail("a big slice is not zero")
					}
					big[k] = seed
				}
				rounds.Add(1)
				runtime.Gosched()
			}
		}(byte(i * 11))
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	go func() {
		for range ticker.C {
			ticks.Add(1)
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err.Error())
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					fmt.Fprintf(c, "%s!\n", lines.Text())
				}
			}()
		}
	}()
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			fail(err.Error())
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		return c, bufio.NewReader(c)
	}
	say := func(c net.Conn, r *bufio.Reader, text string) {
		fmt.Fprintf(c, "%s\n", text)
		if answer, err := r.ReadString('\n'); err != nil || answer != text+"!\n" {
			fail(fmt.Sprint("echo: ", answer, err))
		}
	}
	old, reader := dial()
	say(old, reader, "before")
	fmt.Println("READY")
	for {
		if _, err := os.Stat("go"); err == nil {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	before, t := rounds.Load(), ticks.Load()
	say(old, reader, "after")
	fresh, fr := dial()
	say(fresh, fr, "fresh")
	for end := time.Now().Add(20 * time.Second); (rounds.Load() < before+30 || ticks.Load() < t+5) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	runtime.GC()
	debug.FreeOSMemory()
	stop.Store(1)
	group.Wait()
	if rounds.Load() < before+30 || ticks.Load() < t+5 {
		fail("no progress")
	}
	if kept.check() != 1<<14-1 {
		fail("the old tree has lost nodes")
	}
	fmt.Println("PASS")
}
