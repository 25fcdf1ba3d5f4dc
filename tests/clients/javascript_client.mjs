// What programs do with the official JavaScript client. Usage: node javascript_client.mjs KUBECONFIG
// Every check is an assertion; the last line is "ok".

import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const namespace = 'javascript';

async function refused(code, reason, promise) {
  const error = await promise.then(() => assert.fail(`should be refused with ${reason}`), (error) => error);
  const body = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
  assert.deepEqual([error.code, body?.reason], [code, reason], error);
}

async function objects() {
  await core.createNamespace({ body: { metadata: { name: namespace } } });
  const made = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'a' }, data: { x: '1' } } });
  assert.ok(made.metadata.uid);
  await refused(409, 'AlreadyExists', core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'a' } } }));
  await refused(404, 'NotFound', core.readNamespacedConfigMap({ namespace, name: 'none' }));
  made.data.x = '2';
  await core.replaceNamespacedConfigMap({ namespace, name: 'a', body: made });
  await refused(409, 'Conflict', core.replaceNamespacedConfigMap({ namespace, name: 'a', body: made }));
  const patch = [{ op: 'add', path: '/data/y', value: '3' }];
  const patched = await core.patchNamespacedConfigMap({ namespace, name: 'a', body: patch });
  assert.deepEqual(patched.data, { x: '2', y: '3' });
  const list = await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=a' });
  assert.deepEqual(list.items.map((item) => item.metadata.name), ['a']);
}

async function applies() {
  const options = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.ServerSideApply);
  const apply = (fieldManager, data, force) =>
    core.patchNamespacedConfigMap(
      { namespace, name: 'applied', fieldManager, force, body: { apiVersion: 'v1', kind: 'ConfigMap', data } },
      options,
    );
  await apply('one', { a: '1' });
  await refused(409, 'Conflict', apply('two', { a: '2' }));
  assert.deepEqual((await apply('two', { a: '2' }, true)).data, { a: '2' });
}

async function watches() {
  const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, () =>
    core.listNamespacedConfigMap({ namespace }),
  );
  const seen = (event) => new Promise((resolve) => informer.on(event, (object) => object.metadata.name === 'seen' && resolve(object)));
  const [added, changed, deleted] = ['add', 'update', 'delete'].map(seen);
  await informer.start();
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'seen' } } });
  await added;
  await core.patchNamespacedConfigMap({ namespace, name: 'seen', body: [{ op: 'add', path: '/data', value: { b: 'c' } }] });
  assert.deepEqual((await changed).data, { b: 'c' });
  await core.deleteNamespacedConfigMap({ namespace, name: 'seen' });
  await deleted;
  await informer.stop();
}

async function workloads() {
  const labels = { app: 'web' };
  const template = { metadata: { labels }, spec: { containers: [{ name: 'web', image: 'web:1' }] } };
  const body = { metadata: { name: 'web' }, spec: { replicas: 2, selector: { matchLabels: labels }, template } };
  const made = await apps.createNamespacedDeployment({ namespace, body });
  assert.equal(made.spec.strategy.type, 'RollingUpdate');
  const scale = await apps.readNamespacedDeploymentScale({ namespace, name: 'web' });
  assert.deepEqual([scale.spec.replicas, scale.status.selector], [2, 'app=web']);
}

for (const part of [objects, applies, watches, workloads]) await part();
await core.deleteNamespace({ name: namespace });
console.log('ok');
process.exit(0);
