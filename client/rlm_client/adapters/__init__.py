"""Sessions as the environment of other people's libraries; each module needs the extra that its name says."""
