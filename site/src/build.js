// What a build puts here: its name, and where its packed files are.
export const BUILD = "";
/** @type {Record<string, string>} */
export const FILES = {};
