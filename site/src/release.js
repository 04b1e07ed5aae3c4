// Asks releases of SGLang for the planner: each in a Python of its own, from those files of its wheels that are read.
// They come when a plan first needs them. A plan is ended where its release is not there yet, and asked again.

const WHEELS = "/wheels";
const CHILD = "/child";
const MOST = 3;

/** @typedef {import("pyodide").PyodideInterface} Python */
/** @typedef {Python["FS"]} Files */
/** @typedef {{ask: (case_: string) => string} | {failure: string}} Child */

/**
 * Writes the files of an archive (site/releases.py) below a folder; their bytes are not copied.
 * @param {Files} fs @param {string} folder @param {Uint8Array} archive
 */
export function unpack(fs, folder, archive) {
  const start = 4 + new DataView(archive.buffer, archive.byteOffset).getUint32(0);
  /** @type {{folders: string[], files: [string, number][]}} */
  const { folders, files } = JSON.parse(new TextDecoder().decode(archive.subarray(4, start)));
  for (const name of folders) fs.mkdirTree(`${folder}/${name}`);
  let at = start;
  for (const [name, size] of files) fs.writeFile(`${folder}/${name}`, archive.subarray(at, (at += size)), { canOwn: true });
  fs.chmod(folder || "/", 0o755);
}

/**
 * The archive of an older wheel, from that of the next newer and what differs (site/releases.py).
 * @param {Uint8Array} newer @param {Uint8Array} difference
 */
export function older(newer, difference) {
  const start = 4 + new DataView(difference.buffer, difference.byteOffset).getUint32(0);
  /** @type {(number | [number, number])[]} */
  const steps = JSON.parse(new TextDecoder().decode(difference.subarray(4, start)));
  const made = new Uint8Array(steps.reduce((/** @type {number} */ sum, step) => sum + (typeof step === "number" ? step : step[1]), 0));
  let at = 0;
  let read = start;
  for (const step of steps) {
    const part = typeof step === "number" ? difference.subarray(read, (read += step)) : newer.subarray(step[0], step[0] + step[1]);
    made.set(part, at);
    at += part.length;
  }
  return made;
}

/**
 * What the planner's Python asks (python/page_release.py), and `start`, which starts what it asked for in vain and
 * returns whether that was anything.
 * @param {Python} planner the planner's
 * @param {() => Promise<Python>} newPython
 * @param {(folder: string) => Promise<Uint8Array>} fetchWheel
 * @param {() => Promise<ArrayBuffer>} fetchLibrary what the archive of the standard library has not
 * @param {string} packages where the planner's packages lie
 */
export function releases(planner, newPython, fetchWheel, fetchLibrary, packages) {
  /** @type {Map<string, Child>} */
  const children = new Map();
  /** @type {Map<string, Promise<Uint8Array>>} */
  const wheels = new Map();
  /** @type {Promise<ArrayBuffer> | null} */
  let fetched = null;
  /** @type {{options: string, facts: string} | null} */
  let wanted = null;
  /** How many may still be started for this question: the plan's own. Remedies on other kinds of GPU are estimates. */
  let left = 1;
  /** Whether this question may ask releases at all. */
  let allowed = true;

  /** @param {string} place */
  function wheel(place) {
    const found = wheels.get(place) ?? fetchWheel(place.slice(WHEELS.length + 1));
    wheels.set(place, found);
    found.catch(() => wheels.delete(place));
    return found;
  }

  /** @param {{options: string, facts: string}} asked @returns {Promise<Child>} */
  async function child({ options, facts }) {
    const { release, folders } = JSON.parse(options);
    try {
      const places = [release, ...folders];
      const archives = await Promise.all(places.map(wheel));
      const library = new Uint8Array(await (fetched ??= fetchLibrary()));
      const python = await newPython();
      unpack(python.FS, "", library);
      for (const [number, place] of places.entries()) {
        unpack(python.FS, place, archives[number]);
        if (!planner.FS.analyzePath(place).exists) unpack(planner.FS, place, archives[number]); // it quotes them
      }
      copy(`${packages}/sglang_hydra/releases/child`, `${CHILD}/child`, python.FS);
      copy(`${packages}/page_child`, CHILD, python.FS);
      const start = python.runPython(`import sys; sys.path.insert(0, "${CHILD}")\nfrom page_child import start\nstart`);
      return { ask: start(options, facts) };
    } catch (why) {
      return { failure: `it cannot be run in this browser: ${String(/** @type {Error} */ (why).message ?? why).trim().split("\n").at(-1)}` };
    }
  }

  /** @param {string} from @param {string} to @param {Files} fs */
  function copy(from, to, fs) {
    fs.mkdirTree(to);
    for (const name of planner.FS.readdir(from)) if (/\.(pyc?|json)$/.test(name)) fs.writeFile(`${to}/${name}`, planner.FS.readFile(`${from}/${name}`));
  }

  return {
    page: {
      allowed: () => allowed,
      /** @param {string} options @param {string} facts */
      state(options, facts) {
        const known = children.get(options);
        if (!known && !left) return "it is not asked here";
        if (!known) wanted = { options, facts };
        return known ? ("failure" in known ? known.failure : "ready") : "absent";
      },
      /** @param {string} options @param {string} case_ */
      ask(options, case_) {
        const known = children.get(options);
        return known && "ask" in known ? known.ask(case_) : "{}";
      },
      /** Starting one takes long, so that the latest stay. */
      end() {},
    },
    async start() {
      if (!wanted) return false;
      const asked = wanted;
      wanted = null;
      left--;
      if (children.size >= MOST) children.delete([...children.keys()][0]);
      children.set(asked.options, await child(asked));
      return true;
    },
    /** Before a question: what did not come is tried again. @param {boolean} mayAsk */
    begin(mayAsk) {
      left = mayAsk ? 1 : 0;
      allowed = mayAsk;
      for (const [options, known] of children) if ("failure" in known) children.delete(options);
    },
    isWanted: () => wanted !== null,
  };
}
