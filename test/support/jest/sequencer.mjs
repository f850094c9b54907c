import Sequencer from "@jest/test-sequencer";

/** Files of these folders take longest, however short they are: one of them at the end would keep one worker only. */
const LONGEST_FIRST = ["faults", "slow", "cluster", "e2e", "product"];

const rankOf = ({ path }) => {
  const rank = LONGEST_FIRST.findIndex((folder) => path.includes(`/test/${folder}/`));
  return rank < 0 ? LONGEST_FIRST.length : rank;
};

// oxlint-disable-next-line import/no-default-export -- Jest takes the default export of a testSequencer.
export default class extends Sequencer {
  sort(tests) {
    return super.sort(tests).sort((one, other) => rankOf(one) - rankOf(other));
  }
}
