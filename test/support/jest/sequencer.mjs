import Sequencer from "@jest/test-sequencer";

/** Files that start processes take longest, however short they are: one of them at the end would keep one worker only. */
// oxlint-disable-next-line import/no-default-export -- Jest takes the default export of a testSequencer.
export default class extends Sequencer {
  sort(tests) {
    const sorted = super.sort(tests);
    const long = sorted.filter(({ path }) => /\/test\/(e2e|product|cluster|faults|slow)\//.test(path));
    return [...long, ...sorted.filter((one) => !long.includes(one))];
  }
}
