// All that gomemcache offers, a client of memcached's text protocol, against the server at HOST:PORT.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

var client *memcache.Client

// same ends the program when it got something else.
func same(got, expected any) {
	if !reflect.DeepEqual(got, expected) {
		log.Panicf("got %v, expected %v", got, expected)
	}
}

// fails ends the program unless the error is the one expected, which may be none.
func fails(got, expected error) {
	if !errors.Is(got, expected) {
		log.Panicf("got error %v, expected %v", got, expected)
	}
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value), Expiration: 1000}
}

func value(key string) string {
	found, err := client.Get(key)
	fails(err, nil)
	return string(found.Value)
}

func main() {
	log.SetFlags(log.Lshortfile)
	client = memcache.New(os.Args[1])
	// The machine may be busy.
	client.Timeout = 30 * time.Second
	fails(client.Ping(), nil)
	fails(client.DeleteAll(), nil)
	stores()
	swaps()
	many()
	numbers()
	lengths()
	expiry()
	side()
	fails(client.Close(), nil)
	fmt.Println("passed")
}

func stores() {
	_, err := client.Get("k")
	fails(err, memcache.ErrCacheMiss)
	fails(client.Replace(item("k", "v")), memcache.ErrNotStored)
	fails(client.Add(item("k", "v")), nil)
	fails(client.Add(item("k", "w")), memcache.ErrNotStored)
	fails(client.Append(item("k", "2")), nil)
	fails(client.Prepend(item("k", "0")), nil)
	same(value("k"), "0v2")
	fails(client.Replace(item("k", "w")), nil)
	fails(client.Set(&memcache.Item{Key: "k", Value: []byte("x"), Flags: 1<<32 - 1}), nil)
	found, err := client.Get("k")
	fails(err, nil)
	same(found.Flags, uint32(1<<32-1))
	fails(client.Delete("k"), nil)
	fails(client.Delete("k"), memcache.ErrCacheMiss)
	fails(client.Append(item("k", "2")), memcache.ErrNotStored)
}

func swaps() {
	fails(client.Set(item("swap", "a")), nil)
	first, err := client.Get("swap")
	fails(err, nil)
	second, err := client.Get("swap")
	fails(err, nil)
	first.Value, second.Value = []byte("first"), []byte("second")
	fails(client.CompareAndSwap(first), nil)
	fails(client.CompareAndSwap(second), memcache.ErrCASConflict)
	same(value("swap"), "first")
	fails(client.Delete("swap"), nil)
	fails(client.CompareAndSwap(second), memcache.ErrCacheMiss)
}

func many() {
	keys := []string{}
	for n := 0; n < 1000; n++ {
		keys = append(keys, fmt.Sprintf("many%d", n))
	}
	for _, key := range keys[:500] {
		fails(client.Set(item(key, key)), nil)
	}
	found, err := client.GetMulti(keys)
	fails(err, nil)
	same(len(found), 500)
	for key, item := range found {
		same(string(item.Value), key)
	}
}

func numbers() {
	_, err := client.Increment("number", 1)
	fails(err, memcache.ErrCacheMiss)
	fails(client.Set(item("number", "41")), nil)
	got, err := client.Increment("number", 1)
	fails(err, nil)
	same(got, uint64(42))
	got, err = client.Decrement("number", 100)
	fails(err, nil)
	same(got, uint64(0))
	got, err = client.Increment("number", 1<<64-1)
	fails(err, nil)
	same(got, uint64(1<<64-1))
	fails(client.Set(item("word", "v")), nil)
	if _, err = client.Increment("word", 1); err == nil {
		log.Panic("a word was counted up")
	}
}

func lengths() {
	for _, length := range []int{0, 1, 1000, 100_000, 1_000_000} {
		long := make([]byte, length)
		for at := range long {
			long[at] = byte(at * 7 % 251)
		}
		fails(client.Set(&memcache.Item{Key: "long", Value: long}), nil)
		found, err := client.Get("long")
		fails(err, nil)
		same(bytes.Equal(found.Value, long), true)
	}
	if err := client.Set(&memcache.Item{Key: "long", Value: make([]byte, 1<<21)}); err == nil {
		log.Panic("two mebibytes were stored")
	}
}

// Puts the expiry of a new item off. By a clock of whole seconds its one second may be over at once: then it is made again.
func kept(key string, touch func() error) {
	for tries := 0; ; tries++ {
		fails(client.Set(&memcache.Item{Key: key, Value: []byte("v"), Expiration: 1}), nil)
		err := touch()
		if err == nil {
			return
		}
		same(tries < 100 && errors.Is(err, memcache.ErrCacheMiss), true)
	}
}

func expiry() {
	fails(client.Set(&memcache.Item{Key: "past", Value: []byte("v"), Expiration: -1}), nil)
	_, err := client.Get("past")
	fails(err, memcache.ErrCacheMiss)
	fails(client.Set(&memcache.Item{Key: "short", Value: []byte("v"), Expiration: 1}), nil)
	kept("touched", func() error { return client.Touch("touched", 1000) })
	fails(client.Touch("none", 1000), memcache.ErrCacheMiss)
	kept("asked", func() error {
		_, err := client.GetAndTouch("asked", 1000)
		return err
	})
	for tries := 0; ; tries++ {
		if _, err := client.Get("short"); errors.Is(err, memcache.ErrCacheMiss) {
			break
		}
		same(tries < 1000, true)
		time.Sleep(10 * time.Millisecond)
	}
	same(value("touched"), "v")
	same(value("asked"), "v")
}

// side has eight callers swap one number upwards, side by side: nothing is lost.
func side() {
	fails(client.Set(item("counted", "0")), nil)
	var callers sync.WaitGroup
	for caller := 0; caller < 8; caller++ {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for done := 0; done < 50; {
				old, err := client.Get("counted")
				fails(err, nil)
				count := 0
				_, err = fmt.Sscan(string(old.Value), &count)
				fails(err, nil)
				old.Value = []byte(fmt.Sprint(count + 1))
				if err := client.CompareAndSwap(old); err == nil {
					done++
				} else {
					fails(err, memcache.ErrCASConflict)
				}
			}
		}()
	}
	callers.Wait()
	same(value("counted"), "400")
}
