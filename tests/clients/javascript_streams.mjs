// Commands and ports of the running pod "web", with the official JavaScript client.
// Usage: node javascript_streams.mjs KUBECONFIG
// Every check is an assertion; the last line is "ok".

import assert from 'node:assert/strict';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);

async function commands() {
  const [out, err] = [new PassThrough(), new PassThrough()];
  const script = 'echo out; echo err >&2; read word; echo got $word; exit 3';
  const status = await new Promise((resolve, reject) => {
    const input = Readable.from(['hello\n']);
    new k8s.Exec(config)
      .exec('default', 'web', 'app', ['sh', '-c', script], out, err, input, false, resolve)
      .catch(reject);
  });
  out.end();
  err.end();
  assert.deepEqual([await text(out), await text(err)], ['out\ngot hello\n', 'err\n']);
  assert.deepEqual([status.status, status.details.causes[0].message], ['Failure', '3']);
}

async function ports() {
  const [answer, input] = [new PassThrough(), new PassThrough()];
  const socket = await new k8s.PortForward(config).portForward('default', 'web', [8080], answer, null, input);
  input.write('GET /hello HTTP/1.0\r\n\r\n');
  let heard = '';
  for await (const part of answer) {
    heard += part;
    if (heard.endsWith('here I am\n')) break;
  }
  socket.close();
}

await commands();
await ports();
console.log('ok');
process.exit(0);
