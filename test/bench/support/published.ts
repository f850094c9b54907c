/** A published figure; `by` names sources of SOURCES. */
export interface Published {
  readonly value: number;
  readonly unit: string;
  readonly by: string;
}

/** By the name that tables give a source. */
export const SOURCES = {
  "Bloom 2013": "A. Bloom, Staple Yourself to a Tweet, 2013-08-07",
  "Bruner 2013": "J. Bruner, Tweets loud and quiet, O'Reilly Radar, 2013-12",
  "Costolo 2011": "D. Costolo, State of the Union, 2011-09-08 (TechCrunch)",
  "Krikorian 2013":
    "R. Krikorian, Timelines at Scale, 2012 and 2013 (High Scalability, 2013-07-08; Kleppmann 2017, chapter 1)",
  "Kwak 2010": "H. Kwak et al., What is Twitter, a Social Network or a News Media?, WWW 2010",
  "Myers 2014": "S. Myers et al., Information Network or Social Network?, WWW 2014",
  "Pew 2019": "Pew Research Center, Sizing Up Twitter Users, 2019-04",
  "Sysomos 2009": "Sysomos, 11.5 M accounts, 2009-06 (TechCrunch, 2009-06-10)",
  "Techvibes 2012": "Techvibes, 2012-01-16",
  "Yaccarino 2023": "L. Yaccarino, X, 2023-10 (7.8 billion minutes a day)",
} as const;

/** Twitter's, since no other network of this kind published as many; users are those of a month, times are days. */
export const PUBLISHED = {
  users: { value: 150e6, unit: "users", by: "Krikorian 2013" },
  drops: { value: 4_600, unit: "drops/s", by: "Krikorian 2013" },
  dropsAtPeak: { value: 12_000, unit: "drops/s at peak", by: "Krikorian 2013" },
  reads: { value: 300_000, unit: "reads/s", by: "Krikorian 2013" },
  deliveries: { value: 75, unit: "followers a drop", by: "Krikorian 2013; without followers away for 30 days" },
  silent: { value: 0.4, unit: "of the users post nothing in a month", by: "Costolo 2011" },
  daily: { value: 0.5, unit: "of the users come each day", by: "Costolo 2011" },
  minutes: {
    value: 32,
    unit: "minutes a day each of them spends",
    by: "Yaccarino 2023",
  },
  followersOfSilent: { value: 1, unit: "follower: median of all accounts", by: "Bruner 2013" },
  median: { value: 61, unit: "followers: median of those who post", by: "Bruner 2013" },
  percentile96: { value: 1_000, unit: "followers: percentile 96 of those who post", by: "Bruner 2013" },
  percentile99: { value: 3_000, unit: "followers: percentile 99 of those who post", by: "Bruner 2013" },
  followings: { value: 117, unit: "followings: median", by: "Bruner 2013" },
  tail: {
    value: 2.276,
    unit: "exponent of the density of followers",
    by: "Kwak 2010",
  },
  most: {
    value: 39e6 / 200e6,
    unit: "of the users follow the author with the most followers",
    by: "Bloom 2013; Bruner 2013",
  },
  mean: {
    value: 20e9 / 175e6,
    unit: "followers: mean",
    by: "Myers 2014",
  },
  fewPost: { value: 2.4, unit: "drops a day with 100 followers", by: "Sysomos 2009" },
  manyPost: { value: 10.2, unit: "drops a day with 1,800 followers", by: "Sysomos 2009" },
  topDecile: { value: 0.8, unit: "of the drops are of a tenth of the users", by: "Pew 2019" },
  heavyFollowings: { value: 456 / 74, unit: "times the followings of others has that tenth", by: "Pew 2019" },
  heavyReads: { value: 0.81 / 0.47, unit: "times as many of that tenth come each day", by: "Pew 2019" },
  millionaires: {
    value: 691 / 200e6,
    unit: "of the accounts have a million followers",
    by: "Techvibes 2012",
  },
} as const satisfies Readonly<Record<string, Published>>;
