/** IndexedDB with promises. Records are small and keyed by id, so that two tabs write different ones. */

const VERSION = 1;

/** @type {Promise<IDBDatabase> | undefined} */
let opened;

/** @returns {Promise<IDBDatabase>} */
function open() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("perihelion", VERSION);
    request.onupgradeneeded = () => {
      const database = request.result;
      database.createObjectStore("conversations", { keyPath: "id" });
      database.createObjectStore("messages", { keyPath: "id" }).createIndex("conversation", "conversation");
      database.createObjectStore("tokens", { keyPath: "id" });
    };
    request.onsuccess = () => {
      // Another tab with a newer page may upgrade.
      request.result.onversionchange = () => request.result.close();
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
  });
  return opened;
}

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * Runs a transaction, and resolves once its writes are on disk.
 *
 * @template T
 * @param {string | string[]} stores
 * @param {IDBTransactionMode} mode
 * @param {(transaction: IDBTransaction) => T | Promise<T>} run
 * @returns {Promise<T>}
 */
export async function transaction(stores, mode, run) {
  const transaction = (await open()).transaction(stores, mode);
  const finished = new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(undefined);
    transaction.onerror = transaction.onabort = () => reject(transaction.error ?? new Error("the write was aborted"));
  });
  // A transaction that fails rejects both promises; one of them is enough.
  finished.catch(() => {});
  const value = await run(transaction);
  await finished;
  return value;
}

/** @param {string} store @returns {Promise<any[]>} */
export function all(store) {
  return transaction(store, "readonly", (transaction) => result(transaction.objectStore(store).getAll()));
}

/** @param {string} store @param {string} id @returns {Promise<any>} */
export function get(store, id) {
  return transaction(store, "readonly", (transaction) => result(transaction.objectStore(store).get(id)));
}

/** @param {string} conversation @returns {Promise<any[]>} */
export function messagesOf(conversation) {
  return transaction("messages", "readonly", (transaction) =>
    result(transaction.objectStore("messages").index("conversation").getAll(conversation)));
}

/** @param {string} store @param {...any} records */
export function put(store, ...records) {
  return transaction(store, "readwrite", (transaction) => {
    for (const record of records) transaction.objectStore(store).put(record);
  });
}

/**
 * Changes a record that another tab may change too.
 *
 * @param {string} store
 * @param {string} id
 * @param {(record: any) => any} change
 * @returns {Promise<any>}
 */
export function update(store, id, change) {
  return transaction(store, "readwrite", async (transaction) => {
    const records = transaction.objectStore(store);
    const record = await result(records.get(id));
    if (!record) return undefined;
    const changed = change(record);
    records.put(changed);
    return changed;
  });
}

/**
 * Removes conversations with all their messages and tokens.
 *
 * @param {string[]} conversations
 */
export function purge(conversations) {
  return transaction(["conversations", "messages", "tokens"], "readwrite", async (transaction) => {
    for (const conversation of conversations) {
      transaction.objectStore("conversations").delete(conversation);
      const messages = transaction.objectStore("messages");
      const ids = await result(messages.index("conversation").getAllKeys(conversation));
      for (const id of ids) {
        messages.delete(id);
        transaction.objectStore("tokens").delete(id);
      }
    }
  });
}
