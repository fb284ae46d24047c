// A node HTTP server with a timer, a worker, a pending request and a kept connection; loaded by http_node.sh.
const http = require('http');
const fs = require('fs');
const { Worker } = require('worker_threads');
const crypto = require('crypto');

const body = crypto.createHash('sha256').update('x').digest('hex').repeat(2000);
let ticks = 0, waiting = [];
setInterval(() => { ticks++; }, 20);
const worker = new Worker(`
  const { parentPort } = require('worker_threads');
  let held = new Map();
  for (let i = 0; i < 20000; i++) held.set('k' + i, { i, text: 'v'.repeat(i % 50) });
  parentPort.on('message', (k) => parentPort.postMessage(held.get(k).i));`, { eval: true });
const ask = (k) => new Promise((done) => { worker.once('message', done); worker.postMessage(k); });
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const server = http.createServer((req, res) => {
  if (req.url === '/slow') waiting.push(res); else res.end(req.url + body);
});
const get = (path, agentOf) => new Promise((done, fail) => {
  http.get({ port: server.address().port, host: '127.0.0.1', path, agent: agentOf }, (res) => {
    let text = '';
    res.on('data', (c) => { text += c; });
    res.on('end', () => done(text));
  }).on('error', fail);
});
const check = (ok, what) => { if (!ok) { console.log('FAIL: ' + what); process.exit(1); } };

server.listen(0, '127.0.0.1', async () => {
  check(await get('/one', agent) === '/one' + body, 'first reply');
  check(await ask('k777') === 777, 'worker');
  const slow = get('/slow');
  while (waiting.length === 0) await new Promise((r) => setTimeout(r, 5));
  fs.writeSync(1, 'READY\n');
  while (!fs.existsSync('go')) await new Promise((r) => setTimeout(r, 3));
  const before = ticks;
  check(await get('/two', agent) === '/two' + body, 'reply on the kept connection');
  check(await ask('k19999') === 19999, 'worker after');
  waiting[0].end('late');
  check(await slow === 'late', 'pending request');
  check(await get('/three') === '/three' + body, 'new connection');
  let garbage = [];
  for (let i = 0; i < 300000; i++) garbage.push({ i });
  if (global.gc) global.gc();
  await new Promise((r) => setTimeout(r, 100));
  check(ticks > before, 'interval timer');
  const file = await fs.promises.readFile('/proc/self/status', 'utf8');
  check(file.includes('Name'), 'thread pool');
  fs.writeSync(1, 'PASS\n');
  process.exit(0);
});
