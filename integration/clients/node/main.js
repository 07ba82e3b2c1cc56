// Drives one version of the npm package nacos, which speaks HTTP, sends heartbeats and is
// pushed to over UDP, through every step that a service goes through. The Go test that
// starts this program reads its stdout.
'use strict';

const { isDeepStrictEqual } = require('util');
const readline = require('readline');
const { NacosNamingClient } = require('nacos');

const { SERVERS, SERVICE, MODE } = process.env;
const logger = new console.Console(process.stderr);
const LANG = { lang: 'node' };
const A = '10.1.0.1', B = '10.1.0.2';

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const instance = (ip, more) => ({ ip, port: 8080, metadata: LANG, ...more });
const hosts = (...ips) => Object.fromEntries(ips.map(ip => [`${ip}:8080`, LANG]));
const byAddress = list => Object.fromEntries(list.map(h => [`${h.ip}:${h.port}`, h.metadata]));

async function open() {
  const client = new NacosNamingClient({ logger, serverList: SERVERS });
  client.on('error', err => logger.error(err)); // a poll that failed, say while a server is away
  await client.ready();
  return client;
}

// listed looks what the servers list, with a new client each time: one that has seen
// instances keeps showing them when the list has become empty.
async function listed(service) {
  const client = await open();
  try {
    return byAddress(await client.getAllInstances(service, undefined, '', false));
  } finally {
    await client.close();
  }
}

// reach looks until it sees what it wants. Errors are answers too: servers go away here.
async function reach(want, look, within = 10) {
  const deadline = Date.now() + within * 1000;
  for (;;) {
    const got = await Promise.resolve().then(look).catch(err => err);
    if (isDeepStrictEqual(got, want)) return;
    if (Date.now() > deadline) {
      logger.error('wanted', want, 'last saw', got);
      throw new Error(`not seen within ${within} s`);
    }
    await sleep(50);
  }
}

async function step(name, does) {
  const start = performance.now();
  await does().catch(err => { throw new Error(`step ${name}`, { cause: err }); });
  console.log('step', name, Math.round(performance.now() - start));
}

// done resolves once the test has said that it did what it was asked.
async function done() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === 'done') return;
  }
  throw new Error('nobody said done');
}

async function main() {
  const first = await open(), second = await open();
  let latest = {};

  await step('register', () => first.registerInstance(SERVICE, instance(A)));
  await step('list', () => reach(hosts(A), () => listed(SERVICE)));
  await step('subscribe', async () => {
    first.subscribe(SERVICE, list => { latest = byAddress(list); });
    await reach(hosts(A), () => latest);
  });
  // The SDK also polls, every 10 s: what is seen within 5 s after another was pushed.
  await step('push', async () => {
    await second.registerInstance(SERVICE, instance(B));
    await reach(hosts(A, B), () => latest, 5);
  });
  await step('deregister', async () => {
    await second.deregisterInstance(SERVICE, instance(B));
    await reach(hosts(A), () => latest, 5);
  });
  console.log('skip batch this SDK registers one instance a call');
  const persistent = SERVICE + '-persistent';
  await step('persistent', async () => {
    await first.registerInstance(persistent, instance(A, { ephemeral: false }));
    await reach(hosts(A), () => listed(persistent));
  });

  console.log('ask', MODE === 'one' ? 'restart' : 'kill');
  await done();

  await step('recover', async () => {
    await reach(hosts(A), () => listed(SERVICE), 60);
    await reach(hosts(A), () => listed(persistent), 60);
    await second.registerInstance(SERVICE, instance(B));
    await reach(hosts(A, B), () => latest, 60);
  });
  // B is not deregistered: its heartbeats stop, and the servers forget it after 30 s.
  await step('close', async () => {
    await first.deregisterInstance(SERVICE, instance(A));
    await second.close();
    await reach({}, () => listed(SERVICE), 40);
    await first.close();
  });
  console.log('end');
}

main().then(() => process.exit(0), err => {
  logger.error(err);
  process.exit(1);
});
