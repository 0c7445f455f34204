// All that the package `memcached` offers, a client of the text protocol, against the server at HOST:PORT.
'use strict';

const assert = require('node:assert/strict');
const { setTimeout: pause } = require('node:timers/promises');
const { promisify } = require('node:util');
const Memcached = require('memcached');

// The machine may be busy.
const connected = new Memcached(process.argv[2], { timeout: 30000, retries: 1, poolSize: 4 });
const client = {};
for (const name of [
  'add', 'append', 'cas', 'decr', 'del', 'flush', 'get', 'getMulti', 'gets', 'incr', 'items', 'prepend',
  'replace', 'set', 'settings', 'stats', 'touch', 'version',
]) {
  client[name] = promisify(connected[name].bind(connected));
}

async function refused(promise, words) {
  await assert.rejects(promise, words);
}

async function stores() {
  assert.equal(await client.get('k'), undefined);
  await refused(client.replace('k', 'v', 1000), /not stored/i);
  assert.equal(await client.add('k', 'v', 1000), true);
  await refused(client.add('k', 'w', 1000), /not stored/i);
  assert.equal(await client.append('k', '2'), true);
  assert.equal(await client.prepend('k', '0'), true);
  assert.equal(await client.get('k'), '0v2');
  assert.equal(await client.replace('k', 'täxt', 1000), true);
  assert.equal(await client.get('k'), 'täxt');
  assert.equal(await client.del('k'), true);
  assert.equal(await client.del('k'), false);
  for (const value of [{ a: [1, 2.5, null] }, 41, Buffer.from([0, 255, 13, 10, 0])]) {
    assert.equal(await client.set('typed', value, 1000), true);
    assert.deepEqual(await client.get('typed'), value);
  }
}

async function swaps() {
  await client.set('swap', 'a', 1000);
  const { swap, cas } = await client.gets('swap');
  assert.equal(swap, 'a');
  assert.equal(await client.cas('swap', 'first', cas, 1000), true);
  assert.equal(await client.cas('swap', 'second', cas, 1000), false);
  assert.equal(await client.get('swap'), 'first');
}

async function many() {
  const keys = Array.from({ length: 1000 }, (_, n) => `many${n}`);
  await Promise.all(keys.slice(0, 500).map((key) => client.set(key, key, 1000)));
  const found = await client.getMulti(keys);
  assert.equal(Object.keys(found).length, 500);
  for (const [key, value] of Object.entries(found)) assert.equal(value, key);
}

async function numbers() {
  assert.equal(await client.incr('number', 1), false);
  await client.set('number', 41, 1000);
  assert.equal(await client.incr('number', 1), 42);
  assert.equal(await client.decr('number', 100), 0);
  await client.set('word', 'v', 1000);
  await refused(client.incr('word', 1), /non-numeric/);
}

async function lengths() {
  for (const length of [1, 1000, 100_000, 1_000_000]) {
    const value = Array.from({ length }, (_, n) => String.fromCharCode(97 + ((n * 7) % 26))).join('');
    assert.equal(await client.set('long', value, 1000), true);
    assert.equal(await client.get('long'), value);
  }
}

async function expiry() {
  await client.set('past', 'v', -1);
  assert.equal(await client.get('past'), undefined);
  await client.set('short', 'v', 1);
  // A second may be over at once, by a clock of whole seconds.
  let touched = false;
  for (let tries = 0; !touched && tries < 100; tries++) {
    await client.set('touched', 'v', 1);
    touched = await client.touch('touched', 1000);
  }
  assert.equal(touched, true);
  for (let tries = 0; (await client.get('short')) !== undefined; tries++) {
    assert.ok(tries < 1000, 'it never expires');
    await pause(10);
  }
  assert.equal(await client.get('touched'), 'v');
}

async function words() {
  const [version] = await client.version();
  assert.match(version.version, /^1\.6\./);
  const [stats] = await client.stats();
  assert.ok(stats.curr_items > 500, `${stats.curr_items} items`);
  const [settings] = await client.settings();
  assert.equal(Number(settings.item_size_max), 1 << 20);
  await client.flush();
  assert.equal(await client.get('touched'), undefined);
}

async function all() {
  await client.flush();
  for (const part of [stores, swaps, many, numbers, lengths, expiry, words]) await part();
  connected.end();
  console.log('passed');
}

all().catch((error) => {
  console.error(error);
  process.exit(1);
});
