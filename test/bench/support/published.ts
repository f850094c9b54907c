/** A published figure, and where it was published. */
export interface Published {
  readonly value: number;
  readonly unit: string;
  readonly by: string;
}

const KRIKORIAN =
  "R. Krikorian, Timelines at Scale, 2012 and 2013 (High Scalability, 2013-07-08; Kleppmann 2017, chapter 1)";
const BRUNER = "J. Bruner, Tweets loud and quiet, O'Reilly Radar, 2013-12";
const COSTOLO = "D. Costolo, State of the Union, 2011-09-08 (TechCrunch)";
const SYSOMOS = "Sysomos, 11.5 M accounts, 2009-06 (TechCrunch, 2009-06-10)";
const PEW = "Pew Research Center, Sizing Up Twitter Users, 2019-04";
const BLOOM = "A. Bloom, Staple Yourself to a Tweet, 2013-08-07";

/** Twitter's, since no other network of this kind published as many; users are those of a month, times are days. */
export const PUBLISHED = {
  users: { value: 150e6, unit: "users", by: KRIKORIAN },
  drops: { value: 4_600, unit: "drops/s", by: KRIKORIAN },
  dropsAtPeak: { value: 12_000, unit: "drops/s", by: KRIKORIAN },
  reads: { value: 300_000, unit: "reads/s", by: KRIKORIAN },
  deliveries: { value: 75, unit: "followers a drop", by: `${KRIKORIAN}; followers away for 30 days are left out` },
  silent: { value: 0.4, unit: "of the users post nothing in a month", by: COSTOLO },
  daily: { value: 0.5, unit: "of the users come each day", by: COSTOLO },
  minutes: {
    value: 32,
    unit: "minutes a day each of them spends",
    by: "L. Yaccarino, X, 2023-10 (7.8 billion minutes a day)",
  },
  followersOfSilent: { value: 1, unit: "follower: median of all accounts", by: BRUNER },
  median: { value: 61, unit: "followers: median of those who post", by: BRUNER },
  percentile96: { value: 1_000, unit: "followers: percentile 96 of those who post", by: BRUNER },
  percentile99: { value: 3_000, unit: "followers: percentile 99 of those who post", by: BRUNER },
  followings: { value: 117, unit: "followings: median", by: BRUNER },
  tail: {
    value: 2.276,
    unit: "exponent of the density of followers",
    by: "H. Kwak et al., What is Twitter, a Social Network or a News Media?, WWW 2010",
  },
  most: {
    value: 39e6 / 200e6,
    unit: "of the users follow the author with the most followers",
    by: `${BLOOM}; ${BRUNER}`,
  },
  mean: {
    value: 20e9 / 175e6,
    unit: "followers: mean",
    by: "S. Myers et al., Information Network or Social Network?, WWW 2014",
  },
  fewPost: { value: 2.4, unit: "drops a day with 100 followers", by: SYSOMOS },
  manyPost: { value: 10.2, unit: "drops a day with 1,800 followers", by: SYSOMOS },
  topDecile: { value: 0.8, unit: "of the drops are of a tenth of the users", by: PEW },
  heavyFollowings: { value: 456 / 74, unit: "times the followings of others has that tenth", by: PEW },
  heavyReads: { value: 0.81 / 0.47, unit: "times as many of that tenth come each day", by: PEW },
  millionaires: {
    value: 691 / 200e6,
    unit: "of the accounts have a million followers",
    by: "Techvibes, 2012-01-16",
  },
} as const satisfies Readonly<Record<string, Published>>;
