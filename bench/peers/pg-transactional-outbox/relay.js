// pg-transactional-outbox: a backlog in its outbox is sent to RabbitMQ by one of its two listeners, until each message is marked
// as processed in its table.
//
// Started by `hapax-bench` with --database URL --rabbitmq URL --queue NAME --backlog N --listener polling|replication. It stores
// the backlog, says `ready`, begins when it is told `go`, and says in one line of JSON how long it took and how many are marked.

import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import amqplib from 'amqplib';
import pg from 'pg';
import outbox from 'pg-transactional-outbox';

const { DatabaseSetup } = outbox;

/** Messages that are handled at once, each in a transaction and on a connection of its own, as its handlers are. */
const AT_ONCE = 32;
/** Messages of a poll. */
const POLLED = 256;
/** Messages of one transaction in which the backlog is stored. */
const STORED = 1000;
const LOOK_AGAIN_MS = 5;

const text = { type: 'string' };
const { values: order } = parseArgs({
  options: { database: text, rabbitmq: text, queue: text, backlog: text, listener: text },
});
const backlog = Number(order.backlog);
const url = new URL(order.database);
const database = {
  host: url.hostname,
  port: Number(url.port || 5432),
  user: decodeURIComponent(url.username),
  password: decodeURIComponent(url.password) || undefined,
  database: url.pathname.slice(1),
  max: AT_ONCE, // Its pools are made of this: by default they would have 10.
};
const setup = {
  outboxOrInbox: 'outbox',
  database: database.database,
  schema: 'public',
  table: 'outbox',
  listenerRole: database.user,
  nextMessagesName: 'next_outbox_messages',
  publication: 'bench_publication',
  replicationSlot: `${database.database}_slot`,
};
// Without what its documentation says may be left out of an outbox, and no cleaning beside it.
const settings = {
  dbSchema: setup.schema,
  dbTable: setup.table,
  enableMaxAttemptsProtection: false,
  enablePoisonousMessageProtection: false,
  messageCleanupIntervalInMs: 0,
  messageProcessingTimeoutInMs: 60_000,
};
const logger = {
  ...outbox.getDisabledLogger(),
  warn: (...what) => console.error(...what),
  error: (...what) => console.error(...what),
};

const pool = new pg.Pool(database);
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function prepare() {
  await pool.query(DatabaseSetup.dropAndCreateTable(setup));
  await pool.query(DatabaseSetup.setupPollingIndexes(setup));
  if (order.listener === 'replication') {
    await pool.query(DatabaseSetup.setupReplicationCore(setup));
    await pool.query(`SELECT pg_create_logical_replication_slot('${setup.replicationSlot}', 'pgoutput')`);
  } else {
    await pool.query(DatabaseSetup.createPollingFunction(setup));
  }
  const store = outbox.initializeMessageStorage({ outboxOrInbox: 'outbox', settings }, logger);
  const client = await pool.connect();
  for (let next = 0; next < backlog; ) {
    const end = Math.min(backlog, next + STORED);
    await client.query('BEGIN');
    for (; next < end; next += 1) {
      const message = {
        id: randomUUID(),
        aggregateType: 'shop',
        aggregateId: String(next),
        messageType: 'sold',
        payload: { order: next, note: 'x'.repeat(200) },
        createdAt: new Date().toISOString(),
        concurrency: 'parallel',
      };
      await store(message, client);
    }
    await client.query('COMMIT');
  }
  client.release();
  await pool.query('ANALYZE outbox');
}

/** Publishes as hapax's transport does: persistent, mandatory, and confirmed. */
async function broker() {
  const connection = await amqplib.connect(order.rabbitmq);
  const channel = await connection.createConfirmChannel();
  let sent = 0;
  const handle = (message) =>
    new Promise((resolve, reject) => {
      const body = Buffer.from(JSON.stringify(message.payload));
      const options = { persistent: true, mandatory: true, messageId: message.id };
      channel.sendToQueue(order.queue, body, options, (error) => {
        if (error) {
          reject(error);
        } else {
          sent += 1;
          resolve();
        }
      });
    });
  return { connection, handle, sent: () => sent };
}

/**
 * A poll takes the lock of the oldest message, whoever has it, and a handler that meets the lock fails and waits for the next
 * lease. So it polls when nothing is being handled, which is faster, and takes many at once.
 */
async function batchSize(running) {
  if (running > 0) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    return 0; // It compares with those that are left by now.
  }
  return POLLED;
}

function listen(handle) {
  const config = { outboxOrInbox: 'outbox', dbListenerConfig: database };
  if (order.listener === 'replication') {
    const { publication, replicationSlot } = setup;
    const own = { ...settings, dbPublication: publication, dbReplicationSlot: replicationSlot };
    const concurrencyStrategy = outbox.createReplicationSemaphoreConcurrencyController(AT_ONCE);
    const strategies = { concurrencyStrategy };
    return outbox.initializeReplicationMessageListener({ ...config, settings: own }, { handle }, logger, strategies);
  }
  const own = {
    ...settings,
    nextMessagesBatchSize: POLLED,
    nextMessagesFunctionName: setup.nextMessagesName,
    nextMessagesLockInMs: 60_000,
    nextMessagesPollingIntervalInMs: 5,
  };
  return outbox.initializePollingMessageListener({ ...config, settings: own }, { handle }, logger, {
    batchSizeStrategy: batchSize,
  });
}

const marked = async (is) => {
  const { rows } = await pool.query(`SELECT count(*)::int AS n FROM outbox WHERE processed_at IS ${is}`);
  return rows[0].n;
};
const pause = () => new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));

await prepare();
const { connection, handle, sent } = await broker();
console.log('ready');
if ((await input.next()).value !== 'go') throw new Error('`go` was not said');
const begun = performance.now();
const [shutdown] = listen(handle);
while (sent() < backlog) await pause();
while ((await marked('NULL')) > 0) await pause();
const seconds = (performance.now() - begun) / 1000;
const report = { seconds, sent: await marked('NOT NULL') };
await shutdown();
if (order.listener === 'replication') {
  // The server sees that the listener is gone a moment later.
  for (let tries = 0; ; tries += 1) {
    try {
      await pool.query(`SELECT pg_drop_replication_slot('${setup.replicationSlot}')`);
      break;
    } catch (error) {
      if (tries > 1000) throw error;
      await pause();
    }
  }
}
await connection.close();
await pool.end();
console.log(JSON.stringify(report));
process.exit(0); // A timer of its own may be left.
